"""What a newer foldline wrote into a log: kept in place, never misread or rewritten."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from foldline.errors import NewerFormatError
from foldline.processors.machine_log import MachineLog
from foldline.processors.memory_log import MemoryLog
from foldline.processors.open_log import open_log
from foldline.processors.stored import AuditableLog
from foldline.processors.verify import verify
from foldline.schemas.avsc import event_schema
from foldline.schemas.events import UnknownEvent, UserMessage
from foldline.schemas.recorded import Append
from foldline.schemas.state import MIRRORED
from foldline.testing import LogStory
from foldline.testing.samples import created, said

NEWER = event_schema(UserMessage) | {"name": "UserMessage2"}
UNKNOWN = json.dumps(NEWER | {"foldline_type": "Telepathy"})
NEXT_VERSION = json.dumps(NEWER | {"foldline_schema_version": 2})


@pytest.fixture(params=["memory:", "sqlite:///", "jsonl:///"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AuditableLog]:
    url = request.param
    log = open_log(url if url == "memory:" else f"{url}{tmp_path}/sessions.db")
    yield log
    log.close()


def from_a_newer_writer(story: LogStory, *, version: int = 1) -> Append:
    """An append of a record that has no model here."""
    append = story.append(said("hello"))
    event = UnknownEvent("Telepathy", {"message_id": "m"})
    return append._replace(event=event, schema_name="UserMessage2", schema_version=version)


def test_an_event_of_an_unknown_type_keeps_its_place_and_its_bytes(
    log: AuditableLog,
) -> None:
    assert isinstance(log, MemoryLog | MachineLog)
    log.schemas.add(UNKNOWN)
    story = LogStory(log).given(created(MIRRORED))
    append = from_a_newer_writer(story)
    story.send([append]).then("ACCEPTED", seq=2)
    story.given(said("after"))
    (recorded,) = log.events(story.session_id, after_seq=1, upto_seq=2)
    assert isinstance(recorded.event, UnknownEvent)
    assert "hello" in str(recorded.event.fields)
    assert recorded.body.endswith(append.content)
    assert story.state.counts["Telepathy"] == 1
    assert verify(log).ok


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_a_newer_version_of_a_known_type_is_refused_and_never_rewritten(
    tmp_path: Path, kind: str
) -> None:
    url = f"{kind}:///{tmp_path}/sessions.db"
    newer = open_log(url)
    assert isinstance(newer, MachineLog)
    newer.schemas.add(NEXT_VERSION)
    story = LogStory(newer, session_id="s").given(created(MIRRORED))
    story.send([from_a_newer_writer(story, version=2)]).then("ACCEPTED", seq=2)
    newer.close()
    log = open_log(url)
    before = list(log.stored_events("s"))
    append = story.append(said(), known_seq=2)
    for attempt in (
        lambda: log.state("s"),
        lambda: list(log.structure("s")),
        lambda: log.append([append]),
    ):
        with pytest.raises(NewerFormatError, match="UserMessage has version 2"):
            attempt()
    assert list(log.stored_events("s")) == before
    assert log.state("s", at_seq=1) is not None
    assert [problem.session_id for problem in verify(log).problems] == ["s"]
    log.close()
