"""`foldline show`: what a session is, where it stands, and what nobody knows."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from foldline.cli.clean import clean_line, wrapped
from foldline.cli.context import Context, find_session
from foldline.cli.failures import OK
from foldline.errors import SessionNotFoundError

if TYPE_CHECKING:
    from foldline.cli.looking import Look, TurnSeen
    from foldline.cli.output import Output
    from foldline.processors.lineage import Stretch

LABEL_CELLS = 11
LINES_SHOWN = 5
COUNTS_SHOWN = 24


def show(
    session: str,
    /,
    *,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Show a session: owner, goal, plan, open calls, requests, usage, last turns.

    Args:
        session: Its id, or the beginning of one.
        context: Where to read and write.
    """
    from foldline.cli.looking import look_at, view_of_look  # late: --help does without

    with context.reading() as log:
        session_id = find_session(log, session)
        state = log.state(session_id)
        if state is None:
            raise SessionNotFoundError(session_id, log.url)
        look = look_at(log, state)
    if context.out.json:
        context.out.record(view_of_look(look))
        return OK
    for part in _PARTS:
        part(context.out, look)
    return OK


def _label(out: "Output", label: str, text: str, style: str = "") -> None:
    """Print a label and its text, wrapped; nothing where there is no text."""
    lines = wrapped(clean_line(text), cells=out.cells - LABEL_CELLS)
    for line in lines[:LINES_SHOWN]:
        out.line((f"{label:<{LABEL_CELLS}}", "dim"), (line, style))
        label = ""


def _identity(out: "Output", look: "Look") -> None:
    from foldline.cli.sessions import style_of
    from foldline.projections.views import iso_time

    state = look.state
    _label(out, "session", state.session_id, "bold")
    _label(out, "agent", f"{state.agent} ({state.mode.lower()}, {state.tenant})")
    if state.parent_session_id:
        at = f" at seq {state.fork_seq}" if state.fork_seq else ""
        relation = f"{state.relation.lower()} of {state.parent_session_id}{at}"
        _label(out, "relation", relation)
    if len(look.ancestors) > 1:
        _label(out, "ancestors", ", then ".join(_stretch(s) for s in look.ancestors))
    _label(out, "history", look.no_history, "red")
    reason = f": {state.reason}" if state.reason else ""
    _label(out, "status", f"{state.status}{reason}", style_of(state.status))
    _label(out, "began", iso_time(_began(look)) or "")
    _label(out, "created", iso_time(state.created_at) or "")
    _label(out, "last event", f"{iso_time(state.recorded_at)}, seq {state.seq}")


def _stretch(stretch: "Stretch") -> str:
    """Which events of an ancestor are this session's history too."""
    return f"{stretch.session_id} (seq {stretch.first_seq} to {stretch.last_seq})"


def _began(look: "Look") -> int | None:
    """When a mirrored session began where it was run, as its source says."""
    envelope = look.created.envelope if look.created else None
    return envelope.occurred_at if envelope and envelope.source else None


def _owner(out: "Output", look: "Look") -> None:
    state, lease = look.state, look.lease
    if not state.owner:
        _label(out, "owner", "nobody")
        return
    _label(out, "owner", f"{state.owner} (epoch {state.epoch})")
    if lease is None:
        text = "none: the owner has let go of it, or never renewed one"
    elif not lease.alive:
        text = f"dead (writer {lease.writer}, epoch {lease.epoch}): it may be taken over"
    else:
        text = f"alive, expires in {lease.expires_in_ms} ms unless renewed"
    _label(out, "lease", text, "green" if lease and lease.alive else "yellow")


def _intent(out: "Output", look: "Look") -> None:
    _label(out, "goal", look.goal)
    for constraint_id, text in look.constraints.items():
        _label(out, "constraint", f"{constraint_id}: {text}")
    if not look.plan:
        return
    from foldline.cli.content import line_of_blocks

    out.heading("plan")
    for item in look.plan:
        text = line_of_blocks(item.blocks)
        out.line((f"  {clean_line(item.status):<12} ", "dim"), (text, ""))


def _calls(out: "Output", look: "Look") -> None:
    from foldline.cli.certainty import certain_of, unknown_of
    from foldline.cli.looking import open_calls

    calls = open_calls(look.state)
    if calls:
        out.heading(f"open calls ({len(calls)})")
    for call in calls:
        out.line(
            (f"  #{call.requested_seq} ", "bold"),
            (f"{clean_line(call.status)} ", "yellow"),
            (look.calls.get(call.call_id) or clean_line(call.tool), ""),
        )
        effect = f"{call.effect}, operation {call.operation_id}"
        _fact(out, "call", call.call_id)
        _fact(out, "effect", effect if call.effect else "")
        _fact(out, "certain", certain_of(look.state, call))
        _fact(out, "unknown", unknown_of(look.state, call, look.lease), "red")


def _fact(out: "Output", label: str, text: str, style: str = "") -> None:
    """Print one fact about the thing above it."""
    if text:
        out.line((f"      {label:<8} ", "dim"), (clean_line(text), style))


def _requests(out: "Output", look: "Look") -> None:
    from foldline.projections.views import iso_time

    if look.state.requests:
        out.heading(f"waiting for an answer ({len(look.state.requests)})")
    for key, request in look.state.requests.items():
        out.line(
            (f"  #{request.seq} ", "bold"),
            (f"{clean_line(request.kind)} ", "yellow"),
            (look.asked.get(key, ""), ""),
        )
        _fact(out, "request", request.request_id)
        _fact(out, "call", request.call_id)
        _fact(out, "expires", iso_time(request.expires_at) or "")


def _steering(out: "Output", look: "Look") -> None:
    if look.state.steering:
        out.heading(f"steering not yet applied ({len(look.state.steering)})")
    for key, steering in look.state.steering.items():
        out.line((f"  #{steering.seq} ", "bold"), (look.steering.get(key, ""), ""))
    cancellation = look.state.cancellation
    if cancellation is not None:
        target = f"{cancellation.target} {cancellation.target_id}".strip()
        _label(out, "cancelling", f"{target}: {cancellation.reason}", "yellow")


def _numbers(out: "Output", look: "Look") -> None:
    from foldline.cli.content import text_of_usage
    from foldline.schemas.events import Usage

    state = look.state
    out.heading("numbers")
    totals = {name: getattr(state.usage, name) for name in state.usage.__slots__}
    _label(out, "tokens", text_of_usage(Usage(**totals)))
    _label(out, "events", _counted(state.counts))
    _label(out, "anomalies", _counted(state.anomalies), "yellow")
    _label(out, "not listed", _counted(state.dropped), "yellow")


def _counted(counts: dict[str, int]) -> str:
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{name} {count:,}" for name, count in ranked[:COUNTS_SHOWN])
    left = len(ranked) - COUNTS_SHOWN
    return f"{shown}, and {left} more types" if left > 0 else shown


def _turns(out: "Output", look: "Look") -> None:
    if look.turns:
        out.heading("last turns")
    for turn in look.turns:
        out.line(
            (f"  seq {turn.first_seq} ", "bold"),
            (f"{clean_line(turn.outcome) or 'open'} ", "magenta"),
            (_turn_text(turn), "dim"),
        )
        _fact(out, "asked", turn.asked)
        _fact(out, "said", turn.answered)


def _turn_text(turn: "TurnSeen") -> str:
    return (
        f"{turn.events} events, {turn.model_calls} model calls, "
        f"{turn.tool_calls} tool calls, {turn.output_tokens:,} tokens out"
    )


_PARTS = (_identity, _owner, _intent, _calls, _requests, _steering, _numbers, _turns)
