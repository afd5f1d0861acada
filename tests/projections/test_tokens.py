"""Tokens: only their hashes are kept, and what is changed counts at once."""

import json
import os
import threading
import time
from pathlib import Path

import pytest

from foldline.errors import SettingsError
from foldline.projections import tokens
from foldline.projections.tokens import (
    TokenFile,
    changing,
    digest_of,
    load,
    new_secret,
    save,
)
from tests.serving import TokenBook


@pytest.fixture
def book(tmp_path: Path) -> TokenBook:
    return TokenBook(tmp_path / "tokens.json")


def test_a_token_is_found_by_its_secret_alone(book: TokenBook) -> None:
    secret = book.add("ci", "read", "append", tenant="acme", kind="SERVICE")
    found = book.open().find(secret)
    assert found is not None
    assert (found.token_id, found.tenant, found.kind) == ("ci", "acme", "SERVICE")
    assert found.scopes == {"read", "append"}
    for other in (None, "", secret[:-1], secret + "x", digest_of(secret), "ci"):
        assert book.open().find(other) is None


def test_no_secret_is_in_the_file(book: TokenBook) -> None:
    secret = book.add("ci", "read")
    text = book.path.read_text()
    assert secret not in text
    assert digest_of(secret) in text
    assert book.path.stat().st_mode & 0o777 == 0o600


def test_secrets_are_long_and_never_the_same() -> None:
    secrets = {new_secret() for _ in range(100)}
    assert len(secrets) == 100
    assert all(len(secret) >= 43 for secret in secrets)


def test_a_token_ends_when_its_time_has_passed(book: TokenBook) -> None:
    past, future = int(time.time()) - 1, int(time.time()) + 1_000
    ended = book.add("ended", "read", expires_at=past)
    lives = book.add("lives", "read", expires_at=future)
    assert book.open().find(ended) is None
    assert book.open().find(lives) is not None


def test_a_change_of_the_file_counts_without_a_restart(
    book: TokenBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "LOOKED_AT_EVERY_S", 0.0)
    old = book.add("old", "read")
    opened = book.open()
    new = book.add("new", "read")
    assert opened.find(new) is not None
    save(book.path, book.tokens[1:])
    assert opened.find(old) is None


def test_a_token_that_was_just_added_is_known_at_once(book: TokenBook) -> None:
    """Who adds one uses it: a service that looked once a second would refuse it."""
    book.add("old", "read")
    opened = book.open()
    new = book.add("new", "read")
    time.sleep(2 * tokens.UNKNOWN_LOOKED_AT_EVERY_S)
    assert opened.find(new) is not None


def test_two_changes_at_once_are_both_kept(book: TokenBook) -> None:
    book.add("first", "read")
    first = book.tokens[0]
    inside, go_on, done = (threading.Event() for _ in range(3))

    def change(name: str) -> None:
        with changing(book.path) as held:
            held.append(first.model_copy(update={"token_id": name}))
            inside.set()
            go_on.wait(10)
        done.set()

    threads = [threading.Thread(target=change, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    assert inside.wait(10)
    assert not done.wait(0.2)  # the other one has had time to read the file
    go_on.set()
    for thread in threads:
        thread.join()
    assert {token.token_id for token in load(book.path)} == {"first", "a", "b"}


def test_a_change_that_fails_changes_nothing(book: TokenBook) -> None:
    book.add("first", "read")

    def fail() -> None:
        with changing(book.path) as held:
            held.clear()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [token.token_id for token in load(book.path)] == ["first"]


def test_a_file_that_was_spoilt_changes_nothing(
    book: TokenBook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tokens, "LOOKED_AT_EVERY_S", 0.0)
    secret = book.add("ci", "read")
    opened = book.open()
    book.path.write_text("{")
    assert opened.find(secret) is not None
    book.path.unlink()
    assert opened.find(secret) is not None
    assert "stay as they were" in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"tokens": [{}]}',
        '{"tokens": [{"token_id": "a", "sha256": "short", "tenant": "t", "scopes": []}]}',
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(SettingsError, match="foldline tokens add"):
        TokenFile(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tenant", "../other"),
        ("tenant", ""),
        ("token_id", "a/b"),
        ("scopes", ["root"]),
        ("kind", "AGENT"),
    ],
)
def test_a_token_of_a_strange_shape_is_refused(
    book: TokenBook, field: str, value: object
) -> None:
    book.add("ci", "read")
    held = json.loads(book.path.read_text())
    held["tokens"][0][field] = value
    book.path.write_text(json.dumps(held))
    with pytest.raises(SettingsError):
        load(book.path)


def test_two_tokens_of_one_name_are_refused(book: TokenBook) -> None:
    book.add("ci", "read")
    book.add("ci", "append")
    with pytest.raises(SettingsError, match="twice"):
        load(book.path)


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
def test_a_file_that_others_may_write_is_refused(book: TokenBook) -> None:
    book.add("ci", "read")
    book.path.chmod(0o666)
    with pytest.raises(SettingsError, match="chmod go-w"):
        load(book.path)


def test_roles_are_kept_and_a_file_without_them_is_read_as_before(book: TokenBook) -> None:
    plain = book.add("plain", "read")
    assert "roles" not in book.path.read_text()
    guard = book.add("guard", "approve", kind="PERSON", roles=("security", "boss"))
    rows = json.loads(book.path.read_text())["tokens"]
    assert [row.get("roles") for row in rows] == [None, ["boss", "security"]]
    found = book.open()
    callers = [found.find(secret) for secret in (plain, guard)]
    roles = [caller.roles for caller in callers if caller is not None]
    assert roles == [frozenset(), {"security", "boss"}]
