"""`foldline context`: what a model is shown, why, and the requests that were made of it."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from foldline.cli.clean import clean_line
from foldline.cli.context import Context, find_session
from foldline.cli.failures import NO, OK, UsageError
from foldline.cli.signals import undone_by_signals

if TYPE_CHECKING:
    from foldline.cli.output import Output
    from foldline.processors.log import Log
    from foldline.projections.context_views import Built, Wanted

TYPES_SHOWN = 6
"""How many types of events a line about what was left out names."""

ROLE_CELLS = 10
WHY_CELLS = 16
TOKENS_CELLS = 8


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Which:
    """Which context, and for whom.

    Args:
        at_seq: As it was just after this seq.
        format: The request: anthropic, openai-chat or openai-responses.
        model: For this model; the one that was last asked if not given.
        provider: Who serves the model.
        policy: As if its owner had used this policy: lean, roomy or full.
        budget: The same, within so many tokens (policy lean if not given).
    """

    at_seq: int | None = None
    format: str = ""
    model: str = ""
    provider: str = ""
    policy: str = ""
    budget: int | None = None

    def wanted(self) -> "Wanted":
        """The same as the views have it."""
        # late: --help does without
        from foldline.projections.context_views import Wanted, policy_wanted
        from foldline.projections.render import FORMATS
        from foldline.projections.request import Form

        if self.format and self.format not in FORMATS:
            raise UsageError("--format", f"one of {', '.join(FORMATS)}")
        form = Form(self.format, self.model, self.provider)
        return Wanted(self.at_seq, form, policy_wanted(self.policy, self.budget))


def context_(
    session: str,
    /,
    *,
    which: Which | None = None,
    explain: bool = False,
    diff: bool = False,
    from_seq: int | None = None,
    request: str | None = None,
    output: Path | None = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Show what the model is shown: each message, its tokens, and why it is there.

    With --format the request that a provider's API takes, as JSON. Exit code 1 if a
    request that was rebuilt is not what was sent.

    Args:
        session: Its id, or the beginning of one.
        which: Which context.
        explain: Also the events behind each message, and what was left out.
        diff: What the last model call was shown, against the one before it.
        from_seq: The context, against what it was at this seq.
        request: Rebuild the request of this model call, and check its hash. It takes
            --output, and nothing that says which context.
        output: Write the request to this file, byte for byte.
        context: Where to read and write.
    """
    which = which or Which()
    compares = diff or from_seq is not None
    if request is not None and (explain or compares or which != Which()):
        raise UsageError("--request", "with --output at the most: the call says the rest")
    if diff and from_seq is not None:
        raise UsageError("--diff", "either --diff or --from-seq")
    if compares and (explain or output is not None):
        raise UsageError("--diff", "a difference takes neither --explain nor --output")
    wanted = which.wanted()
    if output is not None:
        from foldline.cli.whole_file import check_place  # late: --help does without

        check_place(output, log_url=context.settings().url)
    with context.reading() as log:
        looking = _Looking(context.out, log, find_session(log, session))
        if request is not None:
            return looking.rebuild(request, output)
        if compares:
            return looking.differ(wanted, from_seq)
        return looking.show(wanted, output, explain=explain)


class _Looking:
    """What one run of the command looks at, and where it says what it sees."""

    def __init__(self, out: "Output", log: "Log", session_id: str) -> None:
        self._out = out
        self._log = log
        self._session_id = session_id

    # --- one context -----------------------------------------------------------------

    def show(self, wanted: "Wanted", output: Path | None, *, explain: bool) -> int:
        """A context, message by message, or as the request that it makes."""
        from foldline.projections.context_views import context_view
        from foldline.tokenizers import default_counter

        explained = explain or not wanted.form.format
        with self._working():
            found = self._built(wanted)
            view = context_view(found, default_counter() if explained else None)
        view = {"session_id": self._session_id} | view
        if output is not None:
            self._write(output, found.data)
        if self._out.json:
            self._out.record(view)
        elif wanted.form.format and output is None:
            self._out.record(found.body)
        if explained and not self._out.json:
            self._show_context(view, explain=explain)
        return OK

    @contextmanager
    def _working(self) -> Generator[None]:
        """Say for as long that this works: a long session takes its time to count."""
        if (show := self._out.progress()) is not None:
            show("building the context, and counting its tokens")
        try:
            yield
        finally:
            self._out.end_progress()

    def _built(self, wanted: "Wanted", *, option: str = "--at-seq") -> "Built":
        from foldline.projections.context_views import built

        found = built(self._log, self._session_id, wanted)
        if found is None:
            raise UsageError(option, f"{self._session_id} has no event there")
        return found

    def _show_context(self, view: dict[str, Any], *, explain: bool) -> None:
        explanation = view["explanation"]
        where = f"seq {view['base_seq'] + 1} to {view['upto_seq']}"
        self._out.line(
            (f"{view['messages']} messages, {view['tools']} tools", "bold"),
            (f", from {where}", ""),
        )
        sizes = dict(explanation["tokens"])
        total, _ = sizes.pop("total"), sizes.pop("messages")
        parts = ", ".join(f"{name} {count:,}" for name, count in sizes.items() if count)
        counted = f" tokens ({explanation['counter']}): {parts}"
        self._out.line((f"{total:,}", "bold"), (counted, "dim"))
        self._show_calibration(view["model"], explanation)
        if explain:
            self._show_budgets(explanation)
        for message in explanation["messages"]:
            self._show_message(message, explain=explain)
        if explain:
            self._show_left_out(explanation["left_out"])
        for sha256 in explanation["texts_gone"]:
            self._out.remark(f"the text of blob {sha256} is gone: its preview is shown")

    def _show_calibration(self, model: str, explanation: dict[str, Any]) -> None:
        """What the provider will say, by what it said of the last calls."""
        calls = explanation["provider_calls"]
        if not calls:
            return
        ratio, unseen = explanation["provider_ratio"], explanation["provider_unseen"]
        self._out.line(
            (f"{explanation['provider_tokens']:,}", "bold"),
            (f" as {clean_line(model)} counts: {ratio:.2f} of each, and ", "dim"),
            (f"{unseen:,} that are not recorded here (by {calls} calls)", "dim"),
        )

    def _show_budgets(self, explanation: dict[str, Any]) -> None:
        """Each section's tokens beside its budget, and what is above it."""
        tokens, budgets = explanation["tokens"], explanation["budgets"]
        if not budgets:
            return
        self._out.heading(f"budgets of policy {clean_line(explanation['policy'])}")
        for name, count in tokens.items():
            if name == "total" or not (count or name in budgets):
                continue
            budget = budgets.get(name)
            over = count - budget if budget else 0
            self._out.line(
                (f"  {name:<{ROLE_CELLS}}", "magenta"),
                (f"{count:>{TOKENS_CELLS},} ", ""),
                (f"of {budget:,}" if budget else "no budget of its own", "dim"),
                (f", {over:,} above it" if over > 0 else "", "yellow"),
            )

    def _show_message(
        self, message: dict[str, Any], *, explain: bool = False, mark: str = ""
    ) -> None:
        self._out.line(
            (f"{mark}{message['place']:>4} ", "dim"),
            (f"{message['role']:<{ROLE_CELLS}}", "magenta"),
            (f"{message['why']:<{WHY_CELLS}} ", "yellow"),
            (f"{message['tokens']:>{TOKENS_CELLS},}  ", "dim"),
            (clean_line(message["text"]), ""),
        )
        if not explain:
            return
        for source in message["sources"]:
            named = f"seq {source['seq']} {source['type']} " if source["seq"] else ""
            self._out.line((f"       {named}{source['event_id']}", "dim"))

    def _show_left_out(self, left_out: list[dict[str, Any]]) -> None:
        if left_out:
            self._out.heading("left out")
        for left in left_out:
            by = f" by seq {left['by_seq']}" if left["by_seq"] else ""
            counts: dict[str, int] = left["types"] or {}
            types = list(counts.items())
            named = ", ".join(f"{name} {count}" for name, count in types[:TYPES_SHOWN])
            more = len(types) - TYPES_SHOWN
            rest = f", and {more} more types" if more > 0 else ""
            self._out.line(
                (f"  {left['why']}{by}", "yellow"),
                (f", {left['events']} events", ""),
                (f", seq {left['from_seq']} to {left['to_seq']}", ""),
                (f": {clean_line(named)}{rest}" if named else "", "dim"),
            )

    # --- two contexts ----------------------------------------------------------------

    def differ(self, wanted: "Wanted", from_seq: int | None) -> int:
        """What the later of two contexts has in common with the earlier one."""
        from dataclasses import replace

        from foldline.projections.context_views import difference_view, last_two_calls
        from foldline.tokenizers import default_counter

        if from_seq is None:
            calls = last_two_calls(self._log, self._session_id, wanted.at_seq)
            if len(calls) < 2:  # noqa: PLR2004 - two are compared
                raise UsageError("--diff", "two model calls; --from-seq compares any two")
            from_seq, last_seq = calls
            wanted = replace(wanted, at_seq=last_seq)
        with self._working():
            after = self._built(wanted)
            earlier = replace(wanted, at_seq=from_seq, form=after.form)
            before = self._built(earlier, option="--from-seq")
            view = difference_view(
                before, after, default_counter(), read_blob=self._log.blobs.get
            )
        if self._out.json:
            self._out.record({"session_id": self._session_id} | view)
        else:
            self._show_difference(view)
        return OK

    def _show_difference(self, view: dict[str, Any]) -> None:
        self._out.line(
            (f"seq {view['before_seq']} and seq {view['after_seq']}: ", ""),
            ("it only grew", "green") if view["only_grew"] else ("it changed", "red"),
            (f", {view['before_tokens']:,} to {view['after_tokens']:,} tokens", ""),
        )
        self._out.line(
            ("the same from the beginning: ", "dim"),
            (f"{view['same_messages']} messages, {view['same_tokens']:,} tokens, ", ""),
            (f"{view['same_bytes']:,} of {view['before_bytes']:,} bytes", ""),
        )
        if view["tools_changed"]:
            self._out.line(("the tools changed", "red"))
        for name, mark in (("dropped", "-"), ("new", "+")):
            for message in view[name]:
                self._show_message(message, mark=mark)

    # --- a request -------------------------------------------------------------------

    def rebuild(self, model_call_id: str, output: Path | None) -> int:
        """The request of a model call, rebuilt from events and compared by its hash."""
        from foldline.projections.context_views import request_view
        from foldline.projections.reading import request_of

        with self._working():
            found = request_of(self._log, self._session_id, model_call_id)
        if found is None:
            raise UsageError("--request", f"{self._session_id} has no such model call")
        view = {"session_id": self._session_id} | request_view(found)
        if output is not None and found.data:
            self._write(output, found.data)
        if self._out.json:
            self._out.record(view)
        else:
            self._show_request(view, printed=output is None)
        return OK if found.ok else NO

    def _show_request(self, view: dict[str, Any], *, printed: bool) -> None:
        for problem in view["problems"]:
            self._out.remark(problem)
        if view["ok"]:
            self._out.remark(f"as it was sent: {view['bytes']:,} bytes, {view['sha256']}")
        if printed and view["request"] is not None:
            self._out.record(view["request"])

    def _write(self, output: Path, data: bytes) -> None:
        from foldline.cli.whole_file import whole_file  # late: --help does without

        try:
            with undone_by_signals(), whole_file(output) as file:
                file.write(data)
        except OSError as error:
            raise UsageError("--output", f"a file that can be written: {error}") from error
