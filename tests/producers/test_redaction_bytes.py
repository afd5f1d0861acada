"""No secret in any byte of any file: after an import, after a live session, over records.

The bytes of every file of a log are searched as they are: database, write-ahead log,
blobs, lines, keys, locks.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from foldline.processors.open_log import open_log
from foldline.producers.client import connect
from foldline.producers.model import ModelResponse, ToolRequest
from foldline.producers.prepare import Draft, Preparer
from foldline.producers.redaction import Redactor
from foldline.producers.tools import Tool, Toolbox, ToolContext
from foldline.schemas.blocks import text_block
from foldline.schemas.envelope import Actor, Envelope
from foldline.schemas.events import BackgroundEnded, KnownEvent, UserMessage
from foldline.settings import Settings
from tests.secret_corpus import Planted, planted, secrets
from tests.transcripts import KEY, Import, Transcript, text, tool_use

SCHEMES = ("sqlite", "jsonl")
SMALL = 2_048
"""An inline limit that sends outputs to the blob store."""

CORPUS: tuple[Planted, ...] = tuple(planted()[::19])
SECRETS = tuple(secret for _, secret in secrets())


@pytest.fixture(params=SCHEMES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    (tmp_path / "log").mkdir()
    return f"{request.param}:///{tmp_path}/log/sessions"


def traces_of(one: Planted) -> list[bytes]:
    """The second half of a secret: as it is, as it was written, and as JSON writes that."""
    halves = [one.secret[len(one.secret) // 2 :], one.encoded[len(one.encoded) // 2 :]]
    return [half.encode() for half in (*halves, *(json.dumps(h)[1:-1] for h in halves))]


def bytes_of(url: str, folder: Path) -> bytes:
    """Every file of a log, and every event as it is stored in whatever code a file has."""
    log = open_log(url)
    bodies = [
        event.body
        for stored in log.stored_sessions()
        for event in log.stored_events(stored.session_id, after_seq=0)
    ]
    log.close()
    files = [path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()]
    assert sum(map(len, bodies)) > 10_000
    return b"\n".join([*bodies, *files])


def assert_no_trace(together: bytes, corpus: tuple[Planted, ...]) -> None:
    missed = {one.way for one in corpus if any(t in together for t in traces_of(one))}
    assert missed == set()


def test_no_file_holds_a_secret_after_an_import(url: str, tmp_path: Path) -> None:
    """In prompts, arguments, outputs above and below the inline limit, unknown records."""
    script = Transcript()
    for number, one in enumerate(CORPUS):
        match number % 4:
            case 0:
                script.user([text(one.text)])
            case 1:
                script.assistant(f"m{number}", tool_use(f"c{number}", command=one.text))
                script.result(f"c{number}", one.text + "\n" + "x " * SMALL)
            case 2:
                script.add("strange", payload={"deep": [one.text, {"er": one.text}]})
            case _:
                dump = json.dumps({"stdout": one.text})
                script.assistant(f"m{number}", tool_use(f"c{number}", nested=dump))
    torn = b'{"type":"user","message":"' + SECRETS[0].encode() + b"\n"
    into = Import(open_log(url), tmp_path / f"of {SECRETS[1]}")
    into.settings = Settings(inline_max_bytes=SMALL)
    into.take(script.data + torn)
    into.log.close()
    everything = bytes_of(url, tmp_path / "log")
    assert_no_trace(everything, CORPUS)
    assert SECRETS[0].encode() not in everything
    assert SECRETS[1].encode() not in everything  # in the path of the file, its `stream`


async def test_no_file_holds_a_secret_after_a_live_session(
    url: str, tmp_path: Path
) -> None:
    """The user, the model, a tool's arguments and output; the tool has what was written."""
    texts = iter(CORPUS)
    seen: list[str] = []

    def run(arguments: dict[str, Any], context: ToolContext) -> str:
        """Say a lot."""
        assert context.attempt == 1
        seen.append(arguments["command"])
        return f"{next(texts).text}\n{'y ' * SMALL}"

    tools = Toolbox(Tool(run, effect="READ_ONLY"))
    settings = Settings(inline_max_bytes=SMALL, url=url)
    async with connect(settings=settings) as client:
        owned = await client.create(agent="a")
        for number in range(12):
            async with owned.turn(next(texts).text) as turn:
                context = await turn.context()
                async with turn.model_call(context, model="m", provider="p") as call:
                    arguments = json.dumps({"command": SECRETS[number]})
                    asked = ToolRequest("run", arguments, f"X{number}")
                    calls = await call.complete(ModelResponse.of(next(texts).text, asked))
                await turn.run_tools(calls, tools)
    assert seen == list(SECRETS[:12])
    everything = bytes_of(url, tmp_path / "log")
    assert_no_trace(everything, CORPUS[:36])
    assert not [secret for secret in SECRETS[:12] if secret.encode() in everything]


# --- over the border of two records ------------------------------------------------------


@pytest.fixture
def preparer() -> Preparer:
    return Preparer(Redactor(KEY), open_log("memory:").blobs, 64 * 1024)


def said_by(preparer: Preparer, said: str, session: str = "s") -> str:
    return _prepared(
        preparer, UserMessage(message_id="m", blocks=(text_block(said),)), session
    )


def _prepared(preparer: Preparer, event: KnownEvent, session: str) -> str:
    envelope = Envelope(
        event_id="0",
        session_id=session,
        writer="w",
        epoch=0,
        actor=Actor(kind="TOOL", id="t"),
    )
    main, *_ = preparer.prepare(Draft(envelope, event))
    blocks = getattr(main.event, "blocks", ()) or getattr(main.event, "output", ())
    return "".join(str(block.body) for block in blocks)


@pytest.mark.parametrize("cut", [0.3, 0.5, 0.7])
def test_the_rest_of_a_secret_is_not_in_the_next_record(
    preparer: Preparer, cut: float
) -> None:
    leaked: list[str] = []
    for kind, secret in secrets():
        at = int(len(secret) * cut)
        first = said_by(preparer, f"it begins {secret[:at]}")
        second = said_by(preparer, f"{secret[at:]} and goes on")
        assert second.endswith(" and goes on")
        if secret[at:] in second or secret in first + second:
            leaked.append(kind)
    assert len(leaked) <= len(SECRETS) // 100, leaked


def test_records_of_other_streams_are_not_looked_at_together(preparer: Preparer) -> None:
    said_by(preparer, f"it begins {SECRETS[0][:50]}")
    other = "Abc1" * 5
    assert said_by(preparer, other, session="another") == other
    ended = BackgroundEnded(handle="h", outcome="COMPLETED", output=(text_block(other),))
    assert _prepared(preparer, ended, "s") == other


def test_a_new_sentence_behind_a_whole_secret_stays(preparer: Preparer) -> None:
    for words in ("and then", "Next, please", "4 more of them"):
        assert "‹secret:" in said_by(preparer, f"it is {SECRETS[45]}")
        assert said_by(preparer, words) == words


def test_a_grown_file_is_recorded_as_it_would_have_been_at_once(tmp_path: Path) -> None:
    """What was said last counts also where it was recorded by an import before."""
    script = Transcript()
    secret = SECRETS[0]
    script.user(f"it begins {secret[:25]}")
    grown = Import(open_log("memory:"), tmp_path)
    grown.take(script.data)
    script.user(f"{secret[25:]} and goes on")
    grown.take(script.data)
    whole = Import(open_log("memory:"), tmp_path)
    whole.take(script.data)
    bodies = [
        [block.body for m in i.of(UserMessage) for block in m.blocks]
        for i in (grown, whole)
    ]
    assert bodies[0] == bodies[1]
    assert secret[25:] not in str(bodies)
