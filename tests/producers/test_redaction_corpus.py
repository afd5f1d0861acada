"""Redaction on a corpus of made-up secrets, and on text that holds none."""

import string
from collections import Counter
from pathlib import Path

import pytest

from foldline.producers.redaction import Redactor
from foldline.producers.redaction_rules import DEFAULT_RULES
from foldline.schemas.blocks import text_block
from foldline.schemas.events import UserMessage
from tests.clean_corpus import logs
from tests.secret_corpus import ENCODINGS, leaks, planted, secrets

KEY = b"k" * 32
RECALL_MIN = 0.99
FALSE_PER_MB = 1
SECRETS_MIN = 200
ENCODINGS_MIN = 12
STANDARD_LIBRARY_CHARS = 2_000_000
ROOT = Path(__file__).parents[2]


@pytest.fixture
def redactor() -> Redactor:
    return Redactor(KEY)


def test_secrets_of_every_prefixed_kind_are_found_in_every_encoding(
    redactor: Redactor,
) -> None:
    corpus = planted()
    missed = [one for one in corpus if leaks(redactor.redact_text(one.text)[0], one)]
    assert len(secrets()) >= SECRETS_MIN
    assert len(ENCODINGS) >= ENCODINGS_MIN
    ways = Counter((one.kind, one.way) for one in missed)
    assert len(missed) <= (1 - RECALL_MIN) * len(corpus), ways.most_common(10)


def test_every_kind_is_found_as_it_is(redactor: Redactor) -> None:
    for kind, secret in secrets(seed=11):
        assert secret not in redactor.redact_text(f"see {secret} there")[0], kind


def test_the_corpus_finds_a_redactor_that_does_nothing() -> None:
    idle = Redactor(KEY, enabled=False)
    assert all(leaks(idle.redact_text(one.text)[0], one) for one in planted()[::50])


@pytest.mark.parametrize("cut", [0.2, 0.5, 0.8])
def test_a_secret_over_two_blocks_is_found(redactor: Redactor, cut: float) -> None:
    for kind, secret in secrets():
        at = int(len(secret) * cut)
        blocks = (text_block(f"it is {secret[:at]}"), text_block(f"{secret[at:]} now"))
        event, _ = redactor.redact_event(UserMessage(message_id="m", blocks=blocks))
        assert isinstance(event, UserMessage)
        said = "".join(str(block.body) for block in event.blocks)
        assert secret[at:] not in said, kind
        assert secret not in said, kind


# --- clean text ------------------------------------------------------------------------


def standard_library() -> str:
    """Sources of the standard library, without tests; always the same files."""
    folder = Path(string.__file__).parent
    names = sorted(path for path in folder.glob("*.py") if path.stat().st_size < 200_000)
    text = "".join(path.read_text(errors="replace") for path in names)
    return text[:STANDARD_LIBRARY_CHARS]


def own_sources() -> str:
    """Foldline's code and pages."""
    folders = ("processors", "producers", "projections", "schemas", "docs", "foldline/cli")
    found = sorted(
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".md"}
    )
    return "".join(path.read_text() for path in found)


@pytest.mark.parametrize("make", [standard_library, own_sources, logs])
def test_clean_text_has_hardly_a_false_finding(redactor: Redactor, make: object) -> None:
    assert callable(make)
    text = str(make())
    found = redactor.redact_text(text)[1]
    assert len(text) > 500_000
    # The examples of cookies in http/cookies.py are what the rule is for.
    wrong = sum(found.values()) - found.get("cookie", 0)
    assert wrong <= FALSE_PER_MB * max(len(text) / 1e6, 1), found


def test_no_rule_of_a_vendor_needs_a_name_beside_the_secret() -> None:
    """What has a prefix is found alone: by a rule that matches the prefix exactly."""
    exact = {rule.name for rule in DEFAULT_RULES if rule.exact_case}
    assert {"github-pat", "aws-key-id", "anthropic-key", "vendor-token"} <= exact
