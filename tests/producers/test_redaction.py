"""The redactor: placeholders, JSON, events, registered values, failing closed."""

import json
import os
import stat
import string
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from re import compile as pattern

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.errors import RedactionError
from foldline.producers.redaction import WITHHELD, Redactor, withheld
from foldline.producers.redaction_fields import is_content
from foldline.producers.redaction_key import key_of_log
from foldline.producers.redaction_rule import Rule
from foldline.producers.redaction_rules import DEFAULT_RULES
from foldline.schemas.blocks import Blob, Block, json_block, text_block
from foldline.schemas.events import (
    EVENT_TYPES,
    AssistantMessage,
    HarnessStateSet,
    Label,
    LabelsSet,
    SessionCreated,
    ToolCallRequested,
    ToolDeclaration,
    ToolsDeclared,
    UserMessage,
)
from tests.samples import sample

KEY = b"k" * 32
TOKEN = "ghp_" + "aB3dE5gH7jK9" * 3
PASSWORD = "hunter22"  # noqa: S105 - the point of these tests


@pytest.fixture
def redactor() -> Redactor:
    return Redactor(KEY)


def said_by(redactor: Redactor, text: str) -> str:
    return redactor.redact_text(text)[0]


def arguments_of(text: str) -> ToolCallRequested:
    return ToolCallRequested(
        call_id="m:0",
        tool="Bash",
        args_hash="",
        message_id="m",
        position=0,
        arguments=(json_block(text),),
    )


# --- placeholders --------------------------------------------------------------------


def test_one_secret_has_one_placeholder_under_one_key(redactor: Redactor) -> None:
    first, second = said_by(redactor, f"a {TOKEN}"), said_by(redactor, f"b {TOKEN} c")
    assert first.removeprefix("a ") == second.removeprefix("b ").removesuffix(" c")
    assert said_by(Redactor(KEY), f"a {TOKEN}") == first
    assert said_by(Redactor(b"x" * 32), f"a {TOKEN}") != first


def test_a_placeholder_is_kind_and_digits_and_nothing_of_the_secret(
    redactor: Redactor,
) -> None:
    shape = pattern(r"‹secret:github-pat:[0-9a-f]{8}›")
    assert shape.fullmatch(said_by(redactor, TOKEN))


def test_counts_name_rules_and_never_values(redactor: Redactor) -> None:
    _, counts = redactor.redact_text(f"{TOKEN} and {TOKEN} and password={PASSWORD}")
    assert counts == {"github-pat": 2, "named": 1}


FRAGMENTS = [
    TOKEN,
    f"password={PASSWORD}",
    "Authorization: Bearer " + "aB3dE5gH7jK9" * 3,
    "Cookie: a=" + TOKEN + "; b=cccc1111dd",
    f"postgres://u:{PASSWORD}@h/x",
    '{"token": "' + TOKEN + '"}',
    "-----BEGIN PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7Zx\n-----END PRIVATE KEY-----",
    "‹secret:named:0123abcd›",
    "‹",
    "secret:",
    "\ufffd",
    "İ",
    "=",
    '"',
    "\\n",
    " ",
    "DB_PASSWORD=",
]


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.one_of(st.sampled_from(FRAGMENTS), st.text(string.printable, max_size=8)),
        max_size=12,
    )
)
def test_redacting_twice_is_redacting_once(parts: list[str]) -> None:
    redactor = Redactor(KEY)
    once, _ = redactor.redact_text("".join(parts))
    assert redactor.redact_text(once) == (once, {})


def test_a_secret_around_a_placeholder_takes_it_in(redactor: Redactor) -> None:
    said = said_by(redactor, f"Cookie: a={TOKEN}; session=s3cr3t-v4lue")
    assert "s3cr3t-v4lue" not in said
    assert said.count("‹secret:") == 1


def test_one_huge_line_is_gone_over_to_its_end(redactor: Redactor) -> None:
    said, counts = redactor.redact_text("x" * 2_000_000 + " " + TOKEN)
    assert counts == {"github-pat": 1}
    assert said.endswith("›")


def test_text_with_replacement_characters_is_gone_over_like_any(
    redactor: Redactor,
) -> None:
    assert TOKEN not in said_by(redactor, f"\ufffd\ufffd{TOKEN}\ufffd")


# --- JSON ----------------------------------------------------------------------------


def test_values_are_replaced_by_the_names_of_their_fields(redactor: Redactor) -> None:
    text = json.dumps(
        {
            "password": "a b",
            "client_secret": 'quo"ted',
            "env": {"GITHUB_TOKEN": "abc123def456", "PATH": "/usr/bin"},
            "headers": [{"name": "X-Api-Key", "value": "k3y-v4lue"}],
            "args": ["--password", PASSWORD, "--verbose"],
            "accessToken": "zzz",
            "max_tokens": 5,
        }
    )
    redacted = json.loads(said_by(redactor, text))
    for value in (
        redacted["password"],
        redacted["client_secret"],
        redacted["env"]["GITHUB_TOKEN"],
        redacted["headers"][0]["value"],
        redacted["args"][1],
        redacted["accessToken"],
    ):
        assert value.startswith("‹secret:named:")
    assert redacted["env"]["PATH"] == "/usr/bin"
    assert redacted["args"][::2] == ["--password", "--verbose"]
    assert redacted["max_tokens"] == 5


def test_json_without_secrets_comes_out_as_it_was_to_the_byte(redactor: Redactor) -> None:
    text = '{ "a" : 1.50, "a": NaN,"b":[1e400 , 12345678901234567890123]}\n'
    assert said_by(redactor, text) == text


def test_json_with_secrets_keeps_numbers_order_and_repeated_keys(
    redactor: Redactor,
) -> None:
    said = said_by(redactor, '{"z":1.50,"password":"aaaaaa","a":1e2,"password":"bbbbbb"}')
    assert said.startswith('{"z":1.50,"password":"‹')
    assert '"a":1e2' in said
    assert "aaaaaa" not in said
    assert "bbbbbb" not in said


def test_json_inside_a_string_of_json_is_taken_apart_too(redactor: Redactor) -> None:
    inner = json.dumps({"password": PASSWORD, "note": 'say "hi"'})
    said = said_by(redactor, json.dumps({"stdout": inner}))
    assert json.loads(json.loads(said)["stdout"])["note"] == 'say "hi"'
    assert PASSWORD not in said


@pytest.mark.parametrize("depth", [50, 500, 100_000])
def test_deep_json_is_gone_over_one_way_or_the_other(
    redactor: Redactor, depth: int
) -> None:
    said = said_by(redactor, "[" * depth + f'"{TOKEN}"' + "]" * depth)
    assert TOKEN not in said


def test_a_key_of_json_may_be_a_secret_itself(redactor: Redactor) -> None:
    assert TOKEN not in said_by(redactor, json.dumps({TOKEN: 1}))


# --- registered values ---------------------------------------------------------------


def test_a_registered_value_is_found_plain_escaped_and_encoded(
    redactor: Redactor,
) -> None:
    value = 'pä"ss wörd'
    redactor.register(value, "The Vault!")
    for form in (
        f"xx{value}yy",
        json.dumps({"said": [value]}),
        json.dumps(value) + " in a log",
        "q=p%C3%A4%22ss%20w%C3%B6rd&",
    ):
        said, counts = redactor.redact_text(form)
        assert counts == {"the-vault": 1}
        assert "‹secret:the-vault:" in said
        assert "ss" not in said


def test_all_forms_of_a_registered_value_have_one_placeholder(redactor: Redactor) -> None:
    redactor.register('a"b"c"d', "mine")
    plain, escaped = said_by(redactor, 'a"b"c"d'), said_by(redactor, r"a\"b\"c\"d")
    assert plain == escaped


def test_the_longest_registered_value_wins(redactor: Redactor) -> None:
    redactor.register("abcdef", "short")
    redactor.register("abcdefghi", "long")
    assert said_by(redactor, "abcdefghi").startswith("‹secret:long:")


def test_a_value_that_would_match_by_accident_is_refused(redactor: Redactor) -> None:
    with pytest.raises(RedactionError):
        redactor.register("abc", "short")


# --- events --------------------------------------------------------------------------


def test_a_secret_over_two_blocks_of_one_message_is_found(redactor: Redactor) -> None:
    halves = (text_block(f"it is {TOKEN[:20]}"), text_block(f"{TOKEN[20:]} there"))
    event, counts = redactor.redact_event(UserMessage(message_id="m", blocks=halves))
    assert isinstance(event, UserMessage)
    first, second = (block.body for block in event.blocks)
    assert counts == {"github-pat": 1}
    assert str(first).startswith("it is ‹secret:github-pat:")
    assert second == " there"


def test_blocks_without_a_secret_across_their_borders_are_left_alone(
    redactor: Redactor,
) -> None:
    blocks = (text_block("a"), text_block(""), Block(kind="json", body="{}"))
    event = UserMessage(message_id="m", blocks=blocks)
    assert redactor.redact_event(event) == (event, {})


def test_ids_signatures_and_what_goes_back_to_a_provider_stay(redactor: Redactor) -> None:
    block = Block(
        kind="reasoning",
        body="thinking",
        call_id=TOKEN,
        signature=TOKEN,
        opaque=f'{{"data":"{TOKEN}"}}',
        provider_item_id=TOKEN,
    )
    event = AssistantMessage(message_id=TOKEN, model_call_id=TOKEN, blocks=(block,))
    assert redactor.redact_event(event) == (event, {})


def test_arguments_stay_json_and_lose_their_secrets(redactor: Redactor) -> None:
    event, counts = redactor.redact_event(
        arguments_of(json.dumps({"command": f"curl -H 'x-api-key: {'ab12' * 8}'"}))
    )
    assert isinstance(event, ToolCallRequested)
    command = json.loads(str(event.arguments[0].body))["command"]
    assert command.startswith("curl -H 'x-api-key: ‹secret:named:")
    assert counts == {"named": 1}


def test_every_place_where_something_is_said_is_gone_over(redactor: Redactor) -> None:
    for event in (
        LabelsSet(labels=(Label(key="api_key", value="abc"),)),
        HarnessStateSet(state_namespace="n", key="password", blocks=(text_block("abc"),)),
        ToolsDeclared(
            tools=(ToolDeclaration(name="t", effect="UNSAFE", description=TOKEN),)
        ),
        SessionCreated(agent="a", environment_json=json.dumps({"x": TOKEN})),
        UserMessage(
            message_id="m",
            blocks=(
                Block(
                    kind="text",
                    body=Blob(sha256=b"x", size=1, media_type="t", preview=TOKEN),
                ),
            ),
        ),
    ):
        redacted, counts = redactor.redact_event(event)
        assert sum(counts.values()) == 1, type(event).__name__
        assert TOKEN not in str(redacted)
        assert type(redacted) is type(event)


@pytest.mark.parametrize("name", sorted(EVENT_TYPES))
def test_events_of_every_type_come_out_equal_if_nothing_in_them_is_secret(
    redactor: Redactor, name: str
) -> None:
    event = sample(EVENT_TYPES[name])
    redacted, counts = redactor.redact_event(event)
    assert counts == {}
    assert redacted == event


STRUCTURE = frozenset(
    {
        *("approvers", "from_agent", "to_agent"),
        *("action", "detector", "fingerprint", "severity", "subject_event_id"),
        *("agent", "args_hash", "call_id", "child_session_id", "compaction_id"),
        *("constraint_id", "continues_handle", "decided_by", "edited_args_hash", "effect"),
        *("executed", "finish_reason", "form", "grant_id", "handle", "idempotency_key"),
        *("inherits", "kept", "key", "kind", "layer", "message_id", "message_ids", "mode"),
        *("model", "model_call_id", "namespace", "operation_id", "origin", "outcome"),
        *("parent_call_id", "parent_record_id", "parent_session_id", "permission_mode"),
        *("policy", "provider", "provider_call_id", "purpose", "record_id", "record_type"),
        *("relation", "replaces", "request_id", "resolver", "response_id", "retry_of"),
        *("role", "root_session_id", "rule", "scope", "state_namespace"),
        *("steering_event_id", "strategy", "system", "target", "target_event_id"),
        *("target_id", "targets", "tool", "trigger"),
    }
)
"""String fields of events that hold ids, names and statuses: never gone over."""


STRING_TYPES = {str(kind) for kind in (str, str | None, tuple[str, ...])}


def test_every_string_field_of_every_event_is_structure_or_content() -> None:
    """A new field has to be put on one side, or it would go unredacted unnoticed."""
    strings = {
        name
        for event_type in EVENT_TYPES.values()
        for name, info in event_type.model_fields.items()
        if str(info.annotation) in STRING_TYPES
    }
    assert {name for name in strings if not is_content(name)} <= STRUCTURE
    assert {name for name in strings if is_content(name)} & STRUCTURE == set()


def test_a_redactor_that_is_off_lets_everything_through() -> None:
    off = Redactor(KEY, enabled=False)
    event = UserMessage(message_id="m", blocks=(text_block(TOKEN),))
    assert off.redact_event(event) == (event, {})
    assert off.redact_text(TOKEN) == (TOKEN, {})


def test_users_add_rules_of_their_own() -> None:
    mine = Rule("badge", ("badge-",), pattern(r"(?P<s>badge-\d{4})"))
    redactor = Redactor(KEY, rules=(*DEFAULT_RULES, mine))
    assert said_by(redactor, "BADGE BADGE-1 badge-1234").startswith(
        "BADGE BADGE-1 ‹secret:b"
    )


# --- failing closed ------------------------------------------------------------------


def _broken(_: object) -> bool:
    raise ValueError(TOKEN)


BROKEN = Rule("broken", ("x",), pattern("(?P<s>x)"), _broken)


def test_an_engine_that_fails_says_so_and_nothing_of_the_text() -> None:
    redactor = Redactor(KEY, rules=(BROKEN,))
    event = UserMessage(message_id="m", blocks=(text_block("x"),))
    for attempt in (
        lambda: redactor.redact_text("x"),
        lambda: redactor.redact_event(event),
    ):
        with pytest.raises(RedactionError) as raised:
            attempt()
        assert TOKEN not in str(raised.value)
        assert raised.value.__cause__ is None


@pytest.mark.parametrize("name", sorted(EVENT_TYPES))
def test_what_is_withheld_keeps_structure_and_no_content(name: str) -> None:
    event = sample(EVENT_TYPES[name])
    blank = withheld(event)
    for field, value in event.__dict__.items():
        if isinstance(value, str) and not is_content(field):
            assert getattr(blank, field) == value
    assert "Grüße" not in str(blank)
    assert "first line" not in str(blank)


def test_what_is_withheld_says_so_in_every_block() -> None:
    event = UserMessage(message_id="m", blocks=(text_block("a"), json_block("{}")))
    blank = withheld(event)
    assert isinstance(blank, UserMessage)
    assert [block.body for block in blank.blocks] == [WITHHELD, WITHHELD]


# --- the key -------------------------------------------------------------------------


def test_the_key_of_a_log_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    key = key_of_log(url)
    file = tmp_path / "s.db.redaction-key"
    assert key_of_log(url) == key == file.read_bytes()
    assert len(key) == 32
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_many_who_make_the_key_at_once_have_the_same(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(key_of_log, [url] * 64))
    assert len(keys) == 1


def test_logs_in_memory_and_different_files_have_different_keys(tmp_path: Path) -> None:
    one, two = (key_of_log(f"sqlite:///{tmp_path}/{name}.db") for name in "ab")
    assert len({one, two, key_of_log("memory:"), key_of_log("memory:")}) == 4


def test_a_damaged_key_is_an_error_and_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "s.db.redaction-key"
    file.write_bytes(b"short")
    with pytest.raises(RedactionError, match="32 bytes"):
        key_of_log(f"sqlite:///{tmp_path}/s.db")
    assert file.read_bytes() == b"short"


def test_a_key_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RedactionError, match="key"):
        key_of_log(f"sqlite:///{tmp_path}/nowhere{os.sep}s.db")
