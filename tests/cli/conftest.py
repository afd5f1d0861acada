"""A SQLite log with sessions of every kind, and the command run on it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from foldline.cli import main
from foldline.processors.log import Log
from foldline.processors.open_log import open_log
from foldline.producers.identity import fresh_id
from foldline.schemas.blocks import json_block, text_block
from foldline.schemas.codec import encode_content
from foldline.schemas.envelope import Actor, Envelope, Source
from foldline.schemas.events import (
    AssistantMessage,
    GoalSet,
    KnownEvent,
    ModelCallCompleted,
    ModelCallStarted,
    PermissionRequested,
    PlanItem,
    PlanUpdated,
    SessionCompleted,
    SessionCreated,
    SteeringReceived,
    ToolCallRequested,
    ToolExecutionCompleted,
    ToolExecutionStarted,
    TurnEnded,
    TurnStarted,
    Usage,
    UserMessage,
)
from foldline.schemas.recorded import Append
from foldline.schemas.verdicts import Verdict
from foldline.settings import Settings

NOBODY = 65_534

HOSTILE = "ok\x1b]0;owned\x07\x1b[31mred\u202eevil\u200b\r\nnext"
"""What a tool may say: a title change, a colour, a bidi override, a hidden space."""


@dataclass(slots=True)
class Writer:
    """Appends to one session as its owner; remembers what was answered."""

    log: Log
    session_id: str
    verdicts: list[Verdict] = field(default_factory=list[Verdict])

    def append(self, event: KnownEvent, *, owner: bool = True, **fields: Any) -> Verdict:
        state = self.log.state(self.session_id)
        envelope = Envelope(
            event_id=fresh_id(),
            session_id=self.session_id,
            writer="writer-1",
            epoch=(state.epoch if state else 1) if owner else 0,
            actor=Actor(kind="HARNESS" if owner else "PERSON", id="somebody"),
            **fields,
        )
        append = Append(
            envelope, event, encode_content(event), known_seq=state.seq if state else 0
        )
        (verdict,) = self.log.append([append])
        assert verdict.recorded, verdict
        self.verdicts.append(verdict)
        return verdict

    def append_message(self, text: str) -> Verdict:
        return self.append(UserMessage(message_id="m", blocks=said(text)), owner=False)

    def append_fork_of(self, parent_id: str, fork_seq: int) -> Verdict:
        """As a fork of a session that nobody has looked at."""
        created = SessionCreated(
            agent="a", relation="FORK", parent_session_id=parent_id, fork_seq=fork_seq
        )
        return self.append(created, prev_hash=b"\1" * 32)


def said(text: str) -> tuple[Any, ...]:
    return (text_block(text),)


def call(index: int, tool: str, arguments: str) -> ToolCallRequested:
    return ToolCallRequested(
        call_id=f"m1:{index}",
        tool=tool,
        args_hash=f"hash{index}",
        message_id="a1",
        position=index,
        arguments=(json_block(arguments),),
    )


def write_open_session(log: Log, session_id: str) -> None:
    """A session that stands in the middle of a turn, with one call of each kind."""
    writer = Writer(log, session_id)
    writer.append(SessionCreated(agent="coder"))
    writer.append(GoalSet(blocks=said("fix the flaky test")), owner=False)
    steps = (
        PlanItem(item_id="1", status="COMPLETED", blocks=said("look")),
        PlanItem(item_id="2", status="PENDING", blocks=said("mend")),
    )
    writer.append(PlanUpdated(items=steps))
    writer.append(TurnStarted(trigger="USER"), turn_id="t1")
    writer.append(UserMessage(message_id="u1", blocks=said("please")), owner=False)
    writer.append(ModelCallStarted(model_call_id="m1", provider="p", model="large"))
    usage = Usage(input_tokens=1200, output_tokens=34, cache_read_input_tokens=1000)
    writer.append(ModelCallCompleted(model_call_id="m1", usage=usage))
    writer.append(
        AssistantMessage(message_id="a1", model_call_id="m1", blocks=said("I look"))
    )
    writer.append(call(0, "shell", '{"cmd": "ls"}'))
    writer.append(call(1, "deploy", '{"to": "production"}'))
    writer.append(call(2, "mail", '{"to": "all"}'))
    writer.append(
        ToolExecutionStarted(call_id="m1:0", effect="READ_ONLY", operation_id="op0")
    )
    writer.append(
        ToolExecutionCompleted(
            call_id="m1:0", exit_code=0, duration_ms=12, output=said(HOSTILE)
        )
    )
    writer.append(
        ToolExecutionStarted(call_id="m1:1", effect="RECONCILABLE", operation_id="op1")
    )
    writer.append(
        PermissionRequested(
            request_id="r1",
            call_id="m1:2",
            args_hash="hash2",
            display=said("mail everybody?"),
        )
    )
    writer.append(SteeringReceived(blocks=said("hurry")), owner=False)


def write_done_session(log: Log, session_id: str) -> None:
    """A session that came to its end."""
    writer = Writer(log, session_id)
    writer.append(SessionCreated(agent="helper"))
    writer.append(TurnStarted(trigger="USER"), turn_id="t1")
    writer.append(TurnEnded(outcome="DONE"), turn_id="t1")
    writer.append(SessionCompleted())


def write_mirrored_session(log: Log, session_id: str) -> None:
    """A session that another harness wrote, at another time."""
    writer = Writer(log, session_id)
    source = Source(system="claude-code", stream="x", position="1", sha256=b"\0" * 32)
    writer.append(
        SessionCreated(agent="claude-code", mode="MIRRORED"),
        owner=False,
        source=source,
        occurred_at=1_700_000_000_000_000,
    )
    writer.append(
        UserMessage(message_id="u", blocks=said("hello")),
        owner=False,
        source=source,
        occurred_at=1_700_000_000_000_000,
        branch="side",
    )


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command gave back."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'sessions.db'}"


@pytest.fixture
def log(url: str) -> Iterator[Log]:
    """The log of `url`, with three sessions: open-1, done-1 and mirror-1."""
    opened = open_log(url, settings=Settings(url=url))
    write_open_session(opened, "open-1")
    write_done_session(opened, "done-1")
    write_mirrored_session(opened, "mirror-1")
    yield opened
    opened.close()


@pytest.fixture
def add_session(log: Log) -> Callable[[str], None]:
    """Write one more session that came to its end."""
    return lambda session_id: write_done_session(log, session_id)


Run = Callable[..., Ran]


@pytest.fixture
def run(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Run a command in this process, on the log of `url`."""
    monkeypatch.setenv("FOLDLINE_URL", url)
    monkeypatch.setenv("COLUMNS", "160")

    def run_here(*arguments: str) -> Ran:
        capsys.readouterr()
        code = main(arguments)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run_here


@pytest.fixture
def foldline() -> Callable[..., Ran]:
    """Run the real command as a process of its own."""

    def run_there(*arguments: str, **options: Any) -> Ran:
        done = subprocess.run(
            [Path(sys.executable).with_name("foldline"), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            **options,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return run_there


@contextmanager
def as_somebody_else() -> Generator[None]:
    """For root every file can be written."""
    if os.getuid() != 0:
        yield
        return
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
