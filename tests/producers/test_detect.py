"""Every format is told by its content; `format_` takes a file for one without looking."""

import json
from pathlib import Path

import pytest

from foldline.errors import ImportSourceError
from foldline.processors.open_log import open_log
from foldline.producers.detect import FORMATS, OTHERS, detect
from foldline.producers.importers import IMPORTERS, import_file
from foldline.producers.redaction import Redactor
from foldline.settings import Settings
from tests.rollouts import Rollout
from tests.transcripts import KEY, Transcript

LIMIT = 100_000


def claude_code() -> bytes:
    script = Transcript()
    script.user("hello")
    return script.data


def rollout(*, bare: bool = False) -> bytes:
    script = Rollout(bare=bare)
    script.meta()
    script.message("user", "hello")
    return script.data


STATE = b'{"$schemaVersion": "1.9", "original_input": "hello"}'
ITEMS = b'[{"type": "function_call", "call_id": "a", "name": "x", "arguments": "{}"}]'


@pytest.mark.parametrize(
    ("data", "format_"),
    [
        (claude_code(), "claude-code"),
        (rollout(), "codex"),
        (rollout(bare=True), "codex"),
        (rollout(bare=True).partition(b"\n")[2], "codex"),
        (b'{"record_type":"state"}\n', "codex"),
        (b"junk\n" + rollout(), "codex"),
        (STATE, "openai-agents"),
        (b"\xef\xbb\xbf \n" + STATE, "openai-agents"),
        (json.dumps(json.loads(STATE), indent=4).encode(), "openai-agents"),
        (ITEMS, "openai-agents"),
    ],
)
def test_a_format_is_told_by_content_whatever_the_name(
    tmp_path: Path, data: bytes, format_: str
) -> None:
    for name in ("x.jsonl", "claude-code.json", "rollout-1.txt"):
        (tmp_path / name).write_bytes(data)
        assert detect(tmp_path / name, record_max_bytes=LIMIT) == format_


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"[1, 2]",
        b'[{"role": "user", "content": "a chat"}]',
        b'[{"type": "function_call"',
        b'{"type": "message", "payload": {}}\n',
        b'{"payload": 7, "type": "event_msg"}\n',
        b'{"other": 1}\n',
    ],
)
def test_what_is_of_no_format_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(data)
    with pytest.raises(ImportSourceError):
        detect(path, record_max_bytes=LIMIT)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (STATE[:-1], "a JSON document that does not end"),
        (STATE[:-3], "a JSON document that does not end"),
        (ITEMS[:-1], "a JSON document that does not end"),
        (ITEMS[:20], "a JSON document that does not end"),
        (json.dumps(json.loads(STATE), indent=4).encode()[:-2], "does not end"),
        (json.dumps(json.loads(ITEMS), indent=4).encode()[:-9], "does not end"),
        (b'{\n"a": 1,\n"b" 2}', "broken in line 3"),
        (b"[" + b"1" * 5_000 + b"]", "a number too long"),
        (b"[]", "an empty list"),
        (b" {\n}\n", "an empty JSON object"),
        (b"[1, 2]", "its records are of no known kind"),
        (b'[{"role": "user", "content": "hi"}]', "it looks like a chat of messages"),
        (b'{\n"trajectory": [],\n"history": []\n}', "a SWE-agent trajectory"),
    ],
)
def test_of_a_document_that_is_none_it_is_said_what_is_wrong(
    tmp_path: Path, data: bytes, says: str
) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(data)
    with pytest.raises(ImportSourceError, match=says):
        detect(path, record_max_bytes=LIMIT)


def test_a_document_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(STATE)
    with pytest.raises(ImportSourceError, match="record_max_bytes"):
        detect(path, record_max_bytes=10)


def test_every_format_has_an_importer_and_an_article() -> None:
    assert set(FORMATS) == set(IMPORTERS)
    names = (*FORMATS.values(), *OTHERS)
    assert all(name.split()[0] in ("a", "an") for name in names)


def test_a_named_format_is_taken_without_looking(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b'[{"role": "user", "content": "a chat"}]')
    log = open_log("memory:")
    redactor, settings = Redactor(KEY), Settings()
    with pytest.raises(ImportSourceError):
        import_file(log, path, settings=settings, redactor=redactor)
    report = import_file(
        log, path, settings=settings, redactor=redactor, format_="openai-agents"
    )
    assert (report.system, report.mapped) == ("openai-agents", 1)
    path.write_bytes(b'{"a": 1}\n')
    kept = import_file(log, path, settings=settings, redactor=redactor, format_="codex")
    assert kept.foreign == {"untyped": 1}


def test_the_formats_of_the_command_are_those_that_there_are() -> None:
    from foldline.cli.imports import FORMATS as OF_THE_COMMAND

    assert set(OF_THE_COMMAND) == set(FORMATS)
