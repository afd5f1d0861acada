"""A tool receives the secrets that it declares, and nothing that it says has one in it."""

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest

from foldline.errors import UndeclaredSecretError
from foldline.producers.model import ToolRequest
from foldline.producers.secrets import Secrets
from foldline.producers.tools import (
    Background,
    Done,
    Failed,
    Reconciled,
    Tool,
    Toolbox,
    ToolContext,
    ToolOutput,
)
from foldline.schemas.blocks import text_block
from tests.harness import client, memory, one_turn

PHRASE = 'sword"fish/42'
DECLARED = {"TOKEN": lambda: PHRASE}

Arguments = dict[str, Any]


def gives(what: str, context: ToolContext) -> Any:
    """What a tool says, with the secret in it."""
    token = context.secret("TOKEN")
    match what:
        case "text":
            return f"with {token}"
        case "json":
            return {"found": token}
        case "output":
            return ToolOutput(f"with {token}", exit_code=1)
        case "background":
            return Background("job", f"with {token}")
        case _:
            raise RuntimeError(f"not with {token}")


@pytest.mark.parametrize("what", ["text", "json", "output", "background", "error"])
async def test_what_a_tool_says_has_no_secret_in_it(what: str) -> None:
    """Neither in the log nor in what the harness is given for the model."""

    def leak(arguments: Arguments, context: ToolContext) -> Any:
        return gives(arguments["what"], context)

    log = memory()
    async with client(log) as own:
        owned = await own.create(agent="a")
        box = Toolbox(Tool(leak, secrets=DECLARED))
        (result,) = await one_turn(
            owned, box, ToolRequest("leak", f'{{"what":"{what}"}}', "p")
        )
        bodies = b"".join([recorded.body async for recorded in owned.events()])
    for form in (PHRASE, json.dumps(PHRASE)[1:-1]):
        assert form not in repr(result)
        assert form.encode() not in bodies
    assert b"[secret TOKEN]" in bodies


async def test_a_tool_does_not_receive_what_it_does_not_declare() -> None:
    """The process may have it: the tool has not."""

    def peek(arguments: Arguments, context: ToolContext) -> str:
        return context.secret(arguments["name"])

    async with client(memory()) as own:
        owned = await own.create(agent="a")
        box = Toolbox(
            Tool(peek, secrets=DECLARED),
            Tool(peek, name="other", secrets={"OTHER": lambda: "x"}),
        )
        requests = [
            ToolRequest("peek", '{"name": "TOKEN"}', "p1"),
            ToolRequest("other", '{"name": "TOKEN"}', "p2"),
        ]
        given, refused = await one_turn(owned, box, *requests)
        assert isinstance(given, Done)
        assert isinstance(refused, Failed)
        assert refused.error_type == UndeclaredSecretError.__name__


async def test_a_reconciler_may_use_the_secrets_and_its_evidence_has_none() -> None:
    """The tool died after its effect; what says so had to log in for it."""

    def send(arguments: Arguments, context: ToolContext) -> str:
        raise RuntimeError(f"{arguments}{context.attempt}")

    def find(arguments: Arguments, context: ToolContext) -> Reconciled:
        token = context.secret("TOKEN")
        return Reconciled(
            executed=True, said=f"{arguments} {token}", evidence=f"by {token}"
        )

    async with client(memory()) as own:
        owned = await own.create(agent="a")
        tool = Tool(send, effect="RECONCILABLE", reconcile=find, secrets=DECLARED)
        (result,) = await one_turn(owned, Toolbox(tool), ToolRequest("send", "{}", "p"))
        assert isinstance(result, Done)
        bodies = b"".join([recorded.body async for recorded in owned.events()])
    assert PHRASE.encode() not in bodies
    assert bodies.count(b"[secret TOKEN]") == 2


@pytest.mark.parametrize(
    "written",
    [
        PHRASE,
        json.dumps({"a": PHRASE}),
        quote(PHRASE, safe=""),
        base64.b64encode(PHRASE.encode()).decode(),
        base64.urlsafe_b64encode(PHRASE.encode()).decode(),
    ],
)
def test_a_secret_is_found_however_it_is_written(written: str) -> None:
    secrets = Secrets(DECLARED)
    secrets.get("TOKEN")
    (block,) = secrets.conceal((text_block(f"<{written}>"),))
    assert "[secret TOKEN]" in str(block.body)
    assert "fish" not in str(block.body)
    assert secrets.conceal_text("nothing here") == "nothing here"


def test_what_was_not_handed_out_changes_nothing() -> None:
    """Only what the tool has had can be in what it says."""
    blocks = (text_block(PHRASE),)
    assert Secrets(DECLARED).conceal(blocks) == blocks
