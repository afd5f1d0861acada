"""docs/audit.md: the commands that it shows are run, and print what it shows.

The session is told here: a harness asks for permission, a person with the role grants over
HTTP, another call is granted by the harness's own policy. In the page `...` is whatever
differs from run to run, or was left out.
"""

import re
import runpy
import shlex
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from foldline.cli import main
from foldline.processors.open_log import open_log
from foldline.schemas.blocks import json_block, text_block
from foldline.schemas.events import (
    AssistantMessage,
    ModelCallCompleted,
    ModelCallStarted,
    PermissionGranted,
    PermissionRequested,
    SessionCreated,
    ToolCallRequested,
    ToolExecutionCompleted,
    ToolExecutionStarted,
    TurnEnded,
    TurnStarted,
    Usage,
)
from foldline.testing import LogStory
from tests.serving import TokenBook, serving

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "audit.md"
SESSION = "refund-17"
REFUND, LOOK = "m1:0", "m1:1"

Run = Callable[[str], str]


def blocks() -> Iterator[tuple[str, list[str]]]:
    """Each command of the page that is shown with what it prints, and these lines."""
    text = PAGE.read_text(encoding="utf-8")
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
            command, *printed = part.splitlines()
            if printed:
                yield command, printed


def asked(call_id: str, tool: str, arguments: str, position: int) -> ToolCallRequested:
    return ToolCallRequested(
        call_id=call_id,
        tool=tool,
        args_hash=f"{position}" * 64,
        message_id="a1",
        position=position,
        arguments=(json_block(arguments),),
    )


def tell(folder: Path, url: str) -> None:
    """The session, from its creation to the end of its turn."""
    book = TokenBook(folder / "tokens.json")
    book.add("dana", "read", "approve", kind="PERSON", roles=("finance",))
    with closing(open_log(url)) as log:
        story = LogStory(log, session_id=SESSION, writer="worker-3").given(
            SessionCreated(agent="support"),
            TurnStarted(trigger="USER"),
            ModelCallStarted(model_call_id="m1", provider="p", model="large"),
            ModelCallCompleted(model_call_id="m1", usage=Usage()),
            AssistantMessage(message_id="a1", model_call_id="m1", blocks=()),
            asked(REFUND, "refund", '{"order": 4711, "cents": 1999}', 0),
            asked(LOOK, "look_up", '{"order": 4711}', 1),
        )
        story.given(
            PermissionRequested(
                request_id="r1",
                call_id=REFUND,
                args_hash="0" * 64,
                approvers=("finance",),
                display=(text_block("Refund 19.99 for order 4711?"),),
            ),
            PermissionGranted(
                call_id=LOOK,
                args_hash="1" * 64,
                decided_by="POLICY",
                policy="reads are free",
                grant_id=str(uuid.uuid4()),
            ),
        )
        with serving(log, tokens=book.open()) as served, served.http("fl_dana") as client:
            answer = client.post(
                f"/sessions/{SESSION}/approvals/r1/grant", json={"args_hash": "0" * 64}
            )
            assert answer.json()["kind"] == "ACCEPTED", answer.text
        for call_id in (REFUND, LOOK):
            story.given(
                ToolExecutionStarted(
                    call_id=call_id, effect="UNSAFE", operation_id=f"op-{call_id}"
                ),
                ToolExecutionCompleted(call_id=call_id, output=()),
            )
        story.given(TurnEnded(outcome="DONE"))


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Runs a command of the page where the log is; gives what it printed."""
    url = f"sqlite:///{tmp_path}/sessions.db"
    tell(tmp_path, url)
    monkeypatch.setenv("FOLDLINE_URL", url)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()

    def play(command: str) -> str:
        program, *words = shlex.split(command)
        if program == "foldline":
            main(words)
        else:
            script, *rest = words
            runpy.run_path(str(ROOT / script))["main"](*rest)
        return capsys.readouterr().out

    return play


def test_the_commands_of_the_page_print_what_it_shows(run: Run) -> None:
    shown = list(blocks())
    assert len(shown) >= 4
    for command, wanted in shown:
        printed = run(command)
        for line in wanted:
            pattern = ".*".join(map(re.escape, line.split("...")))
            found = re.search(f"^{pattern}$", printed, re.MULTILINE)
            assert found, f"{command}\nprints no line like\n{line}\nbut\n{printed}"
