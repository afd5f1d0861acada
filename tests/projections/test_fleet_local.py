"""The fleet of a log of one machine, counted in this process."""

from pathlib import Path

from foldline.processors.open_log import open_log
from foldline.projections.fleet_circles import LoopLimits
from foldline.projections.fleet_local import look
from foldline.projections.fleet_windows import TOOL, rate, whole
from tests.transcripts import Import, Transcript, tool_use


def test_the_tools_of_an_imported_session_have_calls_and_a_rate_of_errors(
    tmp_path: Path,
) -> None:
    """Its transcript has outcomes only: no importer says when a tool began."""
    script = Transcript()
    script.user("do it")
    for number, failed in enumerate((False, True, False, False)):
        script.assistant(f"m{number}", tool_use(f"c{number}", command=f"ls {number}"))
        script.result(f"c{number}", "what it said", is_error=failed)
    log = open_log("memory:")
    Import(log, tmp_path).take(script)
    seen = look(log, pane_s=60, since_us=0, limits=LoopLimits())
    [tool] = [one for one in whole(seen.board.snapshot(), pane_s=60) if one.by == TOOL]
    assert (tool.name, tool.tally.calls, tool.tally.errors) == ("Bash", 4, 1)
    assert rate(tool.tally.errors, tool.tally.calls) == 0.25
