"""Tools as a harness hands them in, and what became of their calls.

A `Tool` says what repeating it does (`effect`): that decides what happens after a crash.

    READ_ONLY      run again
    IDEMPOTENT     run again with the same operation_id
    RECONCILABLE   `reconcile` finds out by operation_id whether it happened
    UNSAFE         nobody runs it again unless a person says so
"""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from foldline.errors import FoldlineError, SettingsError
from foldline.processors.rules import EFFECTS
from foldline.producers.secrets import Fetch, Secrets
from foldline.schemas.blocks import Block, Blocks, json_block, text_block
from foldline.schemas.events import ToolDeclaration

Effect = Literal["READ_ONLY", "IDEMPOTENT", "RECONCILABLE", "UNSAFE"]
Executed = Literal["YES", "NO", "UNKNOWN"]


class ToolContext:
    """What a running tool knows of its execution.

    `operation_id` is the same in every attempt of a call: a tool hands it to whatever
    can tell a repeat (an idempotency key, a unique column). `deadline_s` is how many
    seconds the tool has from its start; None for as long as it likes.
    """

    def __init__(
        self,
        *,
        session_id: str,
        call_id: str,
        operation_id: str,
        attempt: int,
        deadline_s: float | None = None,
        secrets: Mapping[str, Fetch] | None = None,
    ) -> None:
        self.session_id = session_id
        self.call_id = call_id
        self.operation_id = operation_id
        self.attempt = attempt
        self.deadline_s = deadline_s
        self.reason = ""
        self.secrets = Secrets(secrets or {})
        self._stop = threading.Event()
        self._signal = asyncio.Event()

    def secret(self, name: str) -> str:
        """A secret that this tool declares; safe to call from any thread.

        Its value is replaced in whatever the tool says.

        Raises:
            UndeclaredSecretError: the tool does not declare it.
        """
        return self.secrets.get(name)

    @property
    def cancelled(self) -> bool:
        """Whether the tool is to stop; safe to read from any thread."""
        return self._stop.is_set()

    def wait_cancelled(self, timeout_s: float | None = None) -> bool:
        """Wait in a thread until the tool is to stop; False if the time ran out first."""
        return self._stop.wait(timeout_s)

    async def cancellation(self) -> None:
        """Wait in the event loop until the tool is to stop."""
        await self._signal.wait()

    def stop(self, reason: str) -> None:
        """Tell the tool to stop. Called in the event loop."""
        self.reason = self.reason or reason
        self._stop.set()
        self._signal.set()


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool said, where it has an exit code as well."""

    said: str | Block | Sequence[Block]
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Background:
    """The tool goes on in the background: `handle` names it, `said` is its answer now.

    Its end is told by `OwnedSession.background_ended`.
    """

    handle: str
    said: str | Block | Sequence[Block] = ()


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What a reconciler found out about an operation: True, False, or None for neither.

    False needs positive evidence: not having found it where it would appear later is
    no evidence.
    """

    executed: bool | None
    said: str | Block | Sequence[Block] = ()
    evidence: str = ""


class ToolError(FoldlineError):
    """Raised by a tool that failed and knows whether its effect happened."""

    def __init__(self, message: str, *, executed: Executed = "UNKNOWN") -> None:
        self.executed: Executed = executed
        super().__init__(message)


Run = Callable[[dict[str, Any], ToolContext], Any]
Reconciler = Callable[[dict[str, Any], ToolContext], Reconciled | Awaitable[Reconciled]]
Approval = Literal["never", "always"] | Callable[[dict[str, Any]], bool]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: a function of (arguments, ToolContext), and what repeating it does.

    `run` may be a coroutine function; any other runs in a thread of its own. It gives
    text, blocks, a JSON value, a `ToolOutput` or a `Background`. `cancellable` says
    that it may be stopped in the middle: a coroutine is cancelled, a thread finds
    `ctx.cancelled` set. `approval` is "never", "always", or a function of the arguments.
    `secrets` names what `ctx.secret` may give it, each with what fetches it; no other is
    given, and what was given is replaced in whatever the tool says.
    """

    run: Run
    name: str = ""
    effect: Effect = "UNSAFE"
    cancellable: bool = False
    timeout_s: float | None = None
    approval: Approval = "never"
    reconcile: Reconciler | None = None
    secrets: Mapping[str, Fetch] = field(default_factory=dict[str, Fetch])
    description: str = ""
    input_schema: Mapping[str, Any] = field(
        default_factory=lambda: cast("dict[str, Any]", {"type": "object"})
    )

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", getattr(self.run, "__name__", ""))
        if not self.name:
            raise SettingsError("Tool.name", "", "a tool needs a name")
        if self.effect not in EFFECTS:
            raise SettingsError(
                f"Tool({self.name}).effect",
                self.effect,
                "READ_ONLY, IDEMPOTENT, RECONCILABLE or UNSAFE",
            )

    def needs_approval(self, arguments: dict[str, Any]) -> bool:
        """Whether somebody must grant a call with these arguments."""
        if callable(self.approval):
            return self.approval(arguments)
        return self.approval == "always"

    def declaration(self) -> ToolDeclaration:
        """The tool as the model sees it."""
        return ToolDeclaration(
            name=self.name,
            effect=self.effect,
            cancellable=self.cancellable,
            timeout_ms=None if self.timeout_s is None else round(self.timeout_s * 1000),
            description=self.description or (self.run.__doc__ or "").strip(),
            input_schema=json.dumps(self.input_schema, sort_keys=True),
        )


class Toolbox:
    """Tools by their names."""

    def __init__(self, *tools: Tool) -> None:
        self._tools = {tool.name: tool for tool in tools}
        if len(self._tools) != len(tools):
            names = ", ".join(tool.name for tool in tools)
            raise SettingsError("Toolbox", names, "each tool has its own name")

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def get(self, name: str) -> Tool | None:
        """The tool of a name."""
        return self._tools.get(name)

    def declarations(self) -> tuple[ToolDeclaration, ...]:
        """The tools as a model sees them."""
        return tuple(tool.declaration() for tool in self)


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call that the model asked for and that is recorded.

    `arguments` is None where `text`, what the model wrote, is no JSON object; `problem`
    says why such a call cannot run.
    """

    call_id: str
    provider_call_id: str
    tool: str
    text: str
    arguments: dict[str, Any] | None
    problem: str
    args_hash: str
    requested_seq: int


def parse_arguments(text: str) -> tuple[dict[str, Any] | None, str]:
    """The arguments in a text, or None and the reason; no text means no arguments."""
    if not text.strip():
        return {}, ""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        return None, f"the arguments are no JSON: {error}"
    if not isinstance(value, dict):
        return None, "the arguments are no JSON object"
    return cast("dict[str, Any]", value), ""


def said_blocks(said: object) -> Blocks:
    """What a tool gave, as blocks: text, blocks as they are, anything else as JSON."""
    if said is None:
        return ()
    if isinstance(said, str):
        return (text_block(said),)
    if isinstance(said, Block):
        return (said,)
    if isinstance(said, (list, tuple)):
        items = cast("Sequence[object]", said)
        if all(isinstance(item, Block) for item in items):
            return cast("Blocks", tuple(items))
    try:
        return (json_block(json.dumps(said, ensure_ascii=False, default=in_words)),)
    except Exception:  # noqa: BLE001 - what a tool gave is recorded, whatever it is
        return (text_block(in_words(cast("object", said))),)


def in_words(value: object) -> str:
    """`str` of anything, also of what has none: the effect happened all the same."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - its own __str__ raised
        return f"[a {type(value).__name__} that cannot be shown]"


# --- what became of a call -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Done:
    """The tool ran to its end."""

    call: PendingCall
    output: Blocks
    exit_code: int | None = None
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Failed:
    """The tool failed, or never began (`executed` NO): the arguments, a start too late."""

    call: PendingCall
    error_type: str
    blocks: Blocks
    executed: str
    layer: str = "TOOL"
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Denied:
    """Somebody said no; `feedback` is for the model."""

    call: PendingCall
    feedback: Blocks = ()


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nobody has answered the request for permission yet; the call can still run.

    `expired` says that the request is no longer good: the next run asks anew.
    """

    call: PendingCall
    request_id: str
    expired: bool = False


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The call was cancelled; without `stop_confirmed` the tool may still be running."""

    call: PendingCall
    reason: str
    stop_confirmed: bool


@dataclass(frozen=True, slots=True)
class TimedOut:
    """Nobody waits any longer; whether it happened is unknown."""

    call: PendingCall
    after_ms: int
    stop_confirmed: bool


@dataclass(frozen=True, slots=True)
class Unknown:
    """The call began, and nobody knows how it ended."""

    call: PendingCall
    reason: str


@dataclass(frozen=True, slots=True)
class Backgrounded:
    """The tool goes on in the background."""

    call: PendingCall
    handle: str
    output: Blocks = ()


ToolResult = (
    Done | Failed | Denied | Waiting | Cancelled | TimedOut | Unknown | Backgrounded
)
