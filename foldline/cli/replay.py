"""`foldline replay`: a session folded again, walked through, or driven by a harness."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from foldline.cli.context import Context, chosen
from foldline.cli.failures import NO, OK, UsageError

if TYPE_CHECKING:
    from foldline.cli.output import Output
    from foldline.processors.stored import AuditableLog
    from foldline.projections.refold import Corpus, Point, Refold

HASH_SHOWN = 16
"""How many hex digits of a state's hash a line for people shows."""


def replay(
    *session: str,
    at_seq: int | None = None,
    step: bool = False,
    execute: str | None = None,
    from_seq: int | None = None,
    live: bool = False,
    verify: bool = False,
    all: Annotated[bool, Parameter(name="--all")] = False,  # noqa: A002 - the option's name
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Fold a session again from its stored events, and compare. Exit code 1 if it differs.

    Without options: a line per event with the hash of the state after it, compared at
    every checkpoint and snapshot and at the head.

    Args:
        session: Its id, or the beginning of one; with --verify any number of them.
        at_seq: Show the state just after this seq, folded from the events alone.
        step: Walk through what each event changed; on a terminal one at a time.
        execute: Run a harness (MODULE:ATTRIBUTE) on what was recorded. No tool is run, no
            model asked; the first step that differs is named with its cause.
        from_seq: With --execute: only the record up to this seq.
        live: With --execute and --from-seq: fork there, and go on with real tools.
        verify: Only say which sessions fold to something else than was kept of them.
        all: With --verify: every session of the log.
        context: Where to read and write.
    """
    _check(session, modes=(at_seq is not None, step, execute is not None, verify), all=all)
    if live and (execute is None or from_seq is None):
        raise UsageError("--live", "goes with --execute HARNESS and --from-seq N")
    if from_seq is not None and execute is None:
        raise UsageError("--from-seq", "goes with --execute HARNESS")
    with context.reading() as log:
        if verify:
            return _verify(context.out, log, None if all else chosen(log, session))
        (session_id,) = chosen(log, session)
        if execute is not None:
            from foldline.cli.replay_execute import run_harness  # late: --help does without

            return run_harness(
                context, log, session_id, execute, from_seq=from_seq, live=live
            )
        if at_seq is not None:
            return _state_at(context.out, log, session_id, at_seq)
        if step:
            from foldline.cli.stepping import walk  # late: --help does without

            return walk(context.out, log, session_id)
        return _timeline(context.out, log, session_id)


def _check(session: tuple[str, ...], *, modes: tuple[bool, ...], all: bool) -> None:  # noqa: A002 - as above
    if sum(modes) > 1:
        raise UsageError("replay", "one of --at-seq, --step, --execute and --verify")
    verify = modes[-1]
    if all and not verify:
        raise UsageError("--all", "goes with --verify")
    if all == bool(session) and verify:
        raise UsageError("--verify", "with sessions, or with --all")
    if not verify and len(session) != 1:
        raise UsageError("SESSION", "one session; several go with --verify")


# --- one session ---------------------------------------------------------------------


def _timeline(out: "Output", log: "AuditableLog", session_id: str) -> int:
    from foldline.projections.refold import Refold, stored_session

    refold = Refold(log, stored_session(log, session_id))
    events = compared = skipped = problems = 0
    for point in refold.points():
        events += point.recorded is not None
        compared += len(point.compared)
        skipped += len(point.skipped)
        problems += len(point.problems)
        _show_point(out, refold, point)
    if out.json:
        out.record(
            {
                "session_id": session_id,
                "ok": not problems,
                "events": events,
                "compared": compared,
                "skipped": skipped,
                "problem_count": problems,
            }
        )
    else:
        out.line(
            ("ok", "green") if not problems else ("not ok", "red"),
            (f", {events:,} events, compared at {compared:,} places", ""),
            (f", {skipped:,} of another fold version" if skipped else "", ""),
            (f", {problems:,} problems" if problems else "", "red"),
        )
    return NO if problems else OK


def _show_point(out: "Output", refold: "Refold", point: "Point") -> None:
    from foldline.cli.clean import clean_line, padded
    from foldline.cli.timeline import SEQ_CELLS, TYPE_CELLS, style_of
    from foldline.schemas.snapshots import state_hash

    kind = point.recorded.type if point.recorded else ""
    digest = state_hash(refold.state).hex() if point.recorded else ""
    if out.json:
        out.record(
            {
                "seq": point.seq,
                "type": kind or None,
                "state_hash": digest or None,
                "compared": list(point.compared),
                "skipped": list(point.skipped),
                "problems": list(point.problems),
            }
        )
        return
    marks = [f"{name} ok" for name in point.compared] if not point.problems else []
    marks += [f"{name} of another fold version" for name in point.skipped]
    out.line(
        (f"{point.seq:>{SEQ_CELLS - 1}} ", "dim"),
        (padded(clean_line(kind or "?"), cells=TYPE_CELLS) + " ", style_of(kind)),
        (digest[:HASH_SHOWN] + "  ", "dim"),
        (", ".join(marks), "green"),
        (clean_line("; ".join(point.problems)), "red"),
    )


def _state_at(out: "Output", log: "AuditableLog", session_id: str, at_seq: int) -> int:
    from foldline.cli.states import show_state
    from foldline.projections.refold import refolded
    from foldline.projections.views import state_view

    state = refolded(log, session_id, at_seq=at_seq)
    if state is None:
        raise UsageError("--at-seq", f"{session_id} has no event at {at_seq}")
    view = state_view(state)
    if out.json:
        out.record(view)
    else:
        show_state(out, view)
    return OK


# --- many ----------------------------------------------------------------------------


def _verify(out: "Output", log: "AuditableLog", session_ids: list[str] | None) -> int:
    from foldline.projections.refold import refold_all

    wanted = None if session_ids is None else frozenset(session_ids)
    corpus = refold_all(log, wanted, on_progress=_progress(out))
    out.end_progress()
    if out.json:
        from foldline.projections.views import plain

        out.record({"ok": corpus.ok} | plain(corpus))
    else:
        _show_corpus(out, corpus)
    return OK if corpus.ok else NO


def _progress(out: "Output") -> Callable[[int, int], None] | None:
    show = out.progress()
    if show is None:
        return None
    return lambda done, total: show(f"{done:,} of {total:,} sessions replayed")


def _show_corpus(out: "Output", corpus: "Corpus") -> None:
    from foldline.cli.clean import clean_line

    for mismatch in corpus.mismatches:
        where = f"{mismatch.session_id}, seq {mismatch.seq}: "
        out.line((clean_line(where), "bold"), (clean_line(mismatch.reason), ""))
    out.line(
        ("ok", "green") if corpus.ok else ("not ok", "red"),
        (f", {corpus.sessions:,} sessions, {corpus.events:,} events", ""),
        (f", compared at {corpus.compared:,} places", ""),
        (f", {corpus.skipped:,} of another fold version" if corpus.skipped else "", ""),
        (f", {corpus.mismatch_count:,} mismatches" if not corpus.ok else "", "red"),
    )
