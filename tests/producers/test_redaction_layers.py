"""What stands between a rule and a secret: encodings; and other eyes."""

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.errors import RedactionError, SettingsError
from foldline.producers.redaction import Redactor
from foldline.producers.redaction_anchors import anchors_of
from foldline.producers.redaction_engines import Betterleaks, Found
from foldline.producers.redaction_file import SETTING, read_rules, redactor_with
from foldline.producers.redaction_pii import PII_RULES
from foldline.producers.redaction_rules import DEFAULT_RULES
from foldline.producers.redaction_views import layers_of
from foldline.settings import Settings
from tests.secret_corpus import in_base64, in_json, in_percent, in_unicode_escapes, secrets

KEY = b"k" * 32
TOKEN = "ghp_" + "aB3dE5gH7jK9" * 3
ANCHORS = sorted({a for rule in DEFAULT_RULES if rule.exact_case for a in rule.anchors})
VALUE = 'correct "horse" / bättery'


@pytest.fixture
def redactor() -> Redactor:
    return Redactor(KEY)


# --- layers ----------------------------------------------------------------------------

PIECES = [
    *("%41", "%2541", "\\u0041", "\\x41", "\\\\", "\\n", "\\/", "&quot;", "\x1b[31m"),
    *("\0", "\n", "a" * 20, "B7", " ", "ü", "\\u00e4", "=\r\n", "\u200b", "‹", '\\"'),
]


@settings(deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_every_decoded_character_leads_back_to_where_it_came_from(text: str) -> None:
    """To a part of the text, in order; to itself where nothing was decoded."""
    for layer in layers_of(text):
        behind = 0
        for at, char in enumerate(layer.text):
            start, end = layer.original_span(at, at + 1)
            assert behind <= start < end <= len(text)
            behind = end
            if end - start == 1:
                assert text[start] == char


def test_text_without_an_escape_has_no_layer() -> None:
    assert list(layers_of("a line\nand one more, 100% plain C:\\nowhere\n" * 100)) == []


def test_what_stands_around_an_encoded_secret_stays(redactor: Redactor) -> None:
    for encode in (in_percent, in_base64, in_json, in_unicode_escapes):
        said, _ = redactor.redact_text(f"before {encode(TOKEN)} behind")
        assert said.startswith("before ‹secret:github-pat:")
        assert said.endswith("› behind")


def test_a_token_broken_over_lines_is_one_secret(redactor: Redactor) -> None:
    broken = f"{TOKEN[:24]}\n{TOKEN[24:]}"
    for text in (broken, f"+{broken}".replace("\n", "\n+"), broken.replace("\n", "\\n")):
        said, counts = redactor.redact_text(text)
        assert TOKEN[24:] not in said
        assert sum(counts.values()) == 1


@pytest.mark.parametrize("behind", ["and then", "PATH=/usr/bin", "e53647ba" * 5, "Next."])
def test_the_line_behind_a_whole_secret_is_not_taken_for_its_rest(
    redactor: Redactor, behind: str
) -> None:
    said, _ = redactor.redact_text(f"export TOKEN={TOKEN}\n{behind}\n")
    assert said.endswith(f"\n{behind}\n")


def test_the_secrets_of_a_list_are_one_each(redactor: Redactor) -> None:
    listed = [secret for kind, secret in secrets() if kind in {"github", "gitlab", "npm"}]
    said, counts = redactor.redact_text("\n".join(listed))
    assert said.count("\n") == len(listed) - 1
    assert sum(counts.values()) == len(listed)


def test_base64_that_hides_nothing_stays(redactor: Redactor) -> None:
    for data in (b"a picture of nothing at all, in words", bytes(range(256)) * 4):
        text = f"data: {base64.b64encode(data).decode()} end"
        assert redactor.redact_text(text) == (text, {})


# --- known values ------------------------------------------------------------------------


def forms(value: str) -> list[str]:
    """A value as encodings write it, one in another."""
    once = [
        *(in_json(value), json.dumps(value, ensure_ascii=False)[1:-1], quote(value)),
        *(quote(value, safe=""), in_base64(value), value.encode().hex()),
        *(in_base64(f"user:{value}"), in_base64(f"u:{value}!"), in_base64(f"me:{value}")),
    ]
    twice = [encode(form) for form in once for encode in (in_json, in_base64, quote)]
    return [value, *once, *twice]


def test_a_registered_value_is_found_however_it_is_written(redactor: Redactor) -> None:
    """The rules would not find any of these."""
    assert redactor.redact_text(VALUE) == (VALUE, {})
    redactor.register(VALUE, "database")
    for form in forms(VALUE):
        said, counts = redactor.redact_text(f"it is <{form}>.")
        assert form not in said
        assert form[8:-8] not in said
        assert list(counts) == ["database"]


def test_many_registered_values_are_all_found(redactor: Redactor) -> None:
    values = [f"value-{number}-{'x' * (number % 7)}" for number in range(300)]
    for value in values:
        redactor.register(value, value)
    said, counts = redactor.redact_text(" ".join(values))
    assert len(counts) == len(values)
    assert "value-299" not in said.replace("secret:value-299", "")


# --- personal --------------------------------------------------------------------------

PERSONAL = [
    ("email", "write to jane.doe+x@mail.example.org now"),
    ("iban", "to DE89 3704 0044 0532 0130 00 please"),
    ("iban", "GB82WEST12345698765432"),
    ("card", "4111 1111 1111 1111"),
    ("card", "5500-0000-0000-0004"),
    ("phone", "call +49 30 901820 today"),
    ("ssn", "it is 078-05-1120"),
    ("ip-address", "from 203.0.113.9 again"),
]


@pytest.mark.parametrize(("kind", "line"), PERSONAL)
def test_what_is_personal_is_found_by_who_asks(
    redactor: Redactor, kind: str, line: str
) -> None:
    assert redactor.redact_text(line) == (line, {})
    asked = Redactor(KEY, (*DEFAULT_RULES, *PII_RULES))
    assert asked.redact_text(line)[1] == {kind: 1}


@pytest.mark.parametrize(
    "line",
    [
        "4111 1111 1111 1112",
        "DE88 3704 0044 0532 0130 00",
        "127.0.0.1 and 999.1.1.1 and 1.2.3",
        "2026-01-02T03:04:05",
        "id 123e4567-e89b-12d3-a456-426614174000",
        "0000-0000-0000-0000",
    ],
)
def test_a_checksum_that_does_not_fit_is_nobody(line: str) -> None:
    assert Redactor(KEY, (*DEFAULT_RULES, *PII_RULES)).redact_text(line) == (line, {})


# --- a file of rules ---------------------------------------------------------------------

RULES = r"""
pii = true

[[rule]]
name = "acme-token"
anchors = ["acme_"]
pattern = "acme_[a-z0-9]{20,40}"

[[rule]]
name = "acme-pin"
anchors = ["PIN:"]
pattern = 'pin:\s{0,3}(?P<s>\d{4})'
exact_case = false

[[value]]
name = "database"
env = "THE_PASSWORD"
"""


def test_a_file_adds_rules_and_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(RULES)
    monkeypatch.setenv("THE_PASSWORD", VALUE)
    redactor = redactor_with(path, key=KEY)
    text = f"acme_{'a1b2' * 6}, Pin: 1234, {VALUE}, me@example.org, {TOKEN}"
    said, counts = redactor.redact_text(text)
    assert set(counts) == {"acme-token", "acme-pin", "database", "email", "github-pat"}
    assert "Pin: ‹secret:acme-pin:" in said
    assert Settings(redaction_rules=path).redaction_rules == path


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("[[rule]", "Expected"),
        ("rules = 1", "'rules' means nothing"),
        ("rule = 1", "no list of tables"),
        ('[[rule]]\nname = "A b"', "its name"),
        ('[[rule]]\nname = "a"', "no anchors"),
        ('[[rule]]\nname = "a"\nanchors = ["x"]', "shorter"),
        ('[[rule]]\nname = "a"\nanchors = ["xy"]', "no pattern"),
        ('[[rule]]\nname = "a"\nanchors = ["xy"]\npattern = "xy.*"', "no upper bound"),
        ('[[rule]]\nname = "a"\nanchors = ["xy"]\npattern = "xy("', "its pattern"),
        ('[[rule]]\nname = "a"\nanchor = ["xy"]', "'anchor' means nothing"),
        (
            '[[rule]]\nname = "a"\nanchors = ["xy"]\npattern = "xy(\\\\w+)"',
            "no upper bound",
        ),
        ('[[rule]]\nname = "a"\nanchors = ["xy"]\npattern = "(a{1,50}){1,50}b"', "slow"),
        (
            '[[rule]]\nname = "a"\nanchors = ["xy"]\npattern = "xy"\nexact_case = "no"',
            "exact_case is neither true nor false",
        ),
        ('pii = "yes"', "pii is neither true nor false"),
        ("pii = 1", "pii is neither true nor false"),
        ('[[value]]\nname = "a"\nvalue = "b"', "`env`"),
    ],
)
def test_a_file_that_means_nothing_is_named_with_what_is_wrong(
    tmp_path: Path, said: str, problem: str
) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(said)
    with pytest.raises(SettingsError, match=SETTING) as caught:
        read_rules(path)
    assert problem in str(caught.value)
    with pytest.raises(SettingsError, match="No such file"):
        read_rules(tmp_path / "none.toml")


def test_a_value_whose_variable_is_not_set_is_said_to_be_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(RULES)
    monkeypatch.delenv("THE_PASSWORD", raising=False)
    file = read_rules(path)
    assert (dict(file.values), dict(file.unset)) == ({}, {"database": "THE_PASSWORD"})


# --- a second engine ---------------------------------------------------------------------


class Magpie:
    """An engine that knows one word, and fails at another."""

    def find(self, text: str) -> Iterable[Found]:
        if "crash" in text:
            raise ValueError(text)
        return [Found("shiny-thing", "Magpie 1")] if "shiny-thing" in text else []


def test_what_a_second_engine_finds_is_replaced_like_what_a_rule_found() -> None:
    redactor = Redactor(KEY, engines=[Magpie()])
    said, counts = redactor.redact_text(f"a shiny-thing, shiny-thing and {TOKEN}")
    assert "shiny" not in said
    assert said.count("‹secret:magpie-1:") == 2
    assert counts == {"magpie-1": 2, "github-pat": 1}


def test_a_second_engine_that_fails_lets_nothing_through() -> None:
    with pytest.raises(RedactionError) as caught:
        Redactor(KEY, engines=[Magpie()]).redact_text(f"crash {TOKEN}")
    assert TOKEN not in str(caught.value)


def test_betterleaks_is_a_second_engine_where_it_is_installed() -> None:
    try:
        engine = Betterleaks()
    except RedactionError as error:
        assert "foldline[redact-betterleaks]" in str(error)  # noqa: PT017 - either or
        return
    secret = next(text for kind, text in secrets() if kind == "github")
    found = list(engine.find(f"token = {secret!r}, 中文 behind"))
    assert secret in {one.value for one in found}
    assert secret not in Redactor(KEY, (), engines=[engine]).redact_text(f"x {secret}")[0]


# --- anchors ---------------------------------------------------------------------------


@given(st.lists(st.sampled_from([*ANCHORS, "x", "-"]), max_size=6).map("".join))
def test_every_anchor_of_a_text_is_among_the_possible_ones(text: str) -> None:
    """Also one that begins in the middle of another."""
    possible = anchors_of(DEFAULT_RULES, exact_case=True).possible_in(text)
    missed = [one for one in ANCHORS if one in text and one not in {a for _, a in possible}]
    assert missed == []
