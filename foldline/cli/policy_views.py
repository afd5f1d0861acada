"""How rules, what they do, and what they would have done are shown."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from foldline.cli.clean import clean_line

if TYPE_CHECKING:
    from foldline.cli.output import Output
    from foldline.errors import FoldlineError
    from foldline.producers.overseen import Look
    from foldline.projections.backtest import Backtest, Hit
    from foldline.projections.oversight import Policy
    from foldline.projections.spending import Spent

_STYLES = {"RECORDED": "green", "TOO_LATE": "dim", "REFUSED": "yellow"}

MICROS = 1_000_000


def show_rule(out: "Output", rule: "Policy") -> None:
    """One rule of a file."""
    reaction = getattr(rule, "reaction", None)
    kind = type(rule).__name__ if reaction is not None else "Rule"
    view: dict[str, Any] = {"name": rule.name, "kind": kind, "version": rule.version}
    if reaction is not None:
        view |= {"action": reaction.action, "severity": reaction.severity}
        view["target"] = reaction.target if reaction.action == "CANCEL" else None
    if out.json:
        out.record(view)
        return
    told = " ".join(str(v) for k in ("severity", "action", "target") if (v := view.get(k)))
    out.line(
        (f"{rule.name:<24}", "bold"),
        (f"  {kind:<16}  version {rule.version}", ""),
        (f"  {told}", "dim"),
    )


def tell(out: "Output", look: "Look", trouble: "FoldlineError | None" = None) -> None:
    """What a runner did in one look, and what it waits for."""
    for done in look.done:
        if out.json:
            out.record(asdict(done))
            continue
        out.line(
            (clean_line(done.session_id), "bold"),
            (f"  {done.result:<8}", _STYLES[done.result]),
            (f"  {done.event_type}  {done.rule} at seq {done.seq}", ""),
            (f"  {clean_line(done.detail or done.said)}", "dim"),
        )
    for failed in look.failed:
        left = f"rule {failed.rule} is out for it" if failed.rule else "it is not judged"
        out.remark(clean_line(f"{failed.session_id}: {left}: {failed.why}"))
    if trouble is not None:
        out.remark(clean_line(f"{trouble}; trying again"))
    out.flush()


def show_hit(out: "Output", hit: "Hit") -> None:
    """A session in which a rule would have said something."""
    from foldline.projections.views import iso_time  # late: --help does without

    first = hit.first
    if out.json:
        out.record(_view_of_hit(hit))
        return
    more = f", and {hit.findings - 1:,} more times" if hit.findings > 1 else ""
    does = f"{first.action} {first.target}".strip()
    out.line(
        (clean_line(hit.session_id), "bold"),
        (f"  {clean_line(hit.agent)} {hit.mode} {hit.status}", "dim"),
    )
    out.line(
        (f"  seq {first.seq:,}  {iso_time(first.at_us) or '-'}  {does}  ", ""),
        (f"{clean_line(first.said)}{more}", ""),
    )
    out.line((f"  after it: {_told(hit.rest)}", ""))


def _view_of_hit(hit: "Hit") -> dict[str, Any]:
    from foldline.projections.views import iso_time  # late: see above

    first = hit.first
    return {
        "session_id": hit.session_id,
        "agent": hit.agent,
        "mode": hit.mode,
        "status": hit.status,
        "rule": first.rule,
        "version": first.version,
        "seq": first.seq,
        "event_id": first.event_id,
        "at": iso_time(first.at_us),
        "action": first.action,
        "target": first.target or None,
        "said": first.said,
        "findings": hit.findings,
        "seqs": hit.seqs,
        "next": hit.next_types,
        "whole": hit.whole.view(),
        "rest": hit.rest.view(),
        "rest_of_turn": hit.rest_of_turn.view(),
        "spared": hit.spared.view(),
    }


def show_whole(out: "Output", rule: "Policy", whole: "Backtest") -> None:
    """A rule over all sessions."""
    if out.json:
        out.record(
            {
                "rule": rule.name,
                "version": rule.version,
                "sessions": whole.sessions,
                "hit": whole.hit,
                "findings": whole.findings,
                "spent": whole.spent.view(),
                "rest": whole.rest.view(),
                "spared": whole.spared.view(),
            }
        )
        return
    out.line(
        (f"{rule.name}: ", "bold"),
        (f"{whole.hit:,} of {whole.sessions:,} sessions, {whole.findings:,} findings", ""),
    )
    out.line((f"  all of them spent: {_told(whole.spent)}", "dim"))
    if whole.hit:
        out.line((f"  after its first word: {_told(whole.rest)}", ""))
        spared = _told(whole.spared) if whole.spared.events else "it stops nothing"
        out.line((f"  what its stops spare at the most: {spared}", ""))


def _told(spent: "Spent") -> str:
    """Totals in one line."""
    parts = [
        f"{spent.model_calls:,} model calls",
        f"{spent.tool_calls:,} tool calls",
        f"{spent.tokens:,} tokens",
        *(f"{micros / MICROS:,.2f} {name}" for name, micros in sorted(spent.costs.items())),
        span_of(spent.duration_us),
    ]
    return ", ".join(map(clean_line, parts))


def span_of(duration_us: float) -> str:
    """How long something took, for people."""
    seconds = duration_us / MICROS
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
