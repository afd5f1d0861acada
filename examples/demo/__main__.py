"""Watch an agent being killed in the middle of a side effect, resumed, and finished.

Run it as `foldline demo`, or as `python examples/demo` in the environment of foldline.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import uuid
from contextlib import closing
from pathlib import Path

from checks import Findings, find_out, problems
from stage import Played, Scene, play
from story import Story

from foldline.cli.failures import exit_code_of, message_of, view_of
from foldline.errors import FoldlineError
from foldline.faults import CRASH_POINTS
from foldline.logs import open_log
from foldline.settings import Settings

OF_THIS_MACHINE = ("sqlite:", "jsonl:")
"""Logs that need nobody to be set up."""

MAIL_CALL = 5
"""The script's fifth tool call is the mail."""

MAIL_APPEND = 2 + 4 * MAIL_CALL
"""The append of its outcome: session, turn, and for each call the model's start and
answer, and the tool's."""


def main() -> int:
    """Play, look what happened, tell it. 0 only if everything is as it should be."""
    options = _options()
    if options.log:
        look_at(options.log)
    played = play(_scene(options))
    found = find_out(played)
    wrong = list(problems(played, found))
    if options.json:
        for problem in wrong:
            print(f"demo: {problem}", file=sys.stderr)
        print(json.dumps(_summary(played, found)))
    else:
        Story(played, found).tell(wrong)
    return 1 if wrong else 0


def _summary(played: Played, found: Findings) -> dict[str, object]:
    state = found.state
    return {
        "status": state.status if state else None,
        "killed": played.first.killed,
        "epoch": state.epoch if state else None,
        "side_effects": found.mails,
        "resolved": found.resolved,
        "events": len(found.recorded),
        "wake_ms": played.second.said.get("wake_ms") if played.second else None,
        "session_id": played.scene.session_id,
        "log": played.scene.url,
    }


def _scene(options: argparse.Namespace) -> Scene:
    folder = options.keep or Path(tempfile.mkdtemp(prefix="foldline-demo-"))
    folder = folder.absolute()
    return Scene(
        folder=folder,
        url=options.log or f"sqlite:///{folder / 'sessions.db'}",
        session_id=f"demo-{uuid.uuid4().hex[:8]}",
        crash_at=options.crash_at or "",
        model=(options.model_url, options.model) if options.model_url else None,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="foldline demo", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--log", help="the log; default: one in the demo's folder")
    parser.add_argument("--keep", type=Path, help="the demo's folder; default: a new one")
    parser.add_argument("--crash-at", type=_crash_at, metavar="POINT[:N]", help="die there")
    parser.add_argument("--model-url", help="an OpenAI-compatible API, .../v1")
    parser.add_argument("--model", default="", help="the model's name there")
    options = parser.parse_args()
    if bool(options.model_url) != bool(options.model):
        parser.error("--model-url and --model go together")
    if options.log == "memory:":
        parser.error("--log memory: dies with the first process; name a file's log")
    if options.keep and (options.keep / "repository").exists():
        parser.error(f"--keep {options.keep}: a demo was there before; give a new folder")
    return options


def _crash_at(value: str) -> str:
    """POINT:N; without N where the mail is sent, and its outcome appended."""
    point, _, count = value.partition(":")
    usual = {"CP_TOOL": MAIL_CALL, "CP_APPEND": MAIL_APPEND}
    points = {name: n for name in CRASH_POINTS for k, n in usual.items() if k in name}
    if point not in points:
        msg = f"no such point; there are {', '.join(sorted(points))}"
        raise argparse.ArgumentTypeError(msg)
    return f"{point}:{int(count or points[point])}"


def look_at(url: str) -> None:
    """Look whether a log elsewhere is set up, before an agent waits for its answers.

    Raises:
        FoldlineError: it says what is missing, and what to do.
    """
    settings = Settings().model_copy(update={"url": url})
    if url.startswith("kafka://"):
        from foldline.kafka import cluster_of  # late: most demos do without a broker
        from foldline.kafka_ready import require_ready

        require_ready(cluster_of(settings), settings, say=_say)
    elif not url.startswith(OF_THIS_MACHINE):
        with closing(open_log(url)) as log:
            log.state("nobody's")


def _say(text: str) -> None:
    print(f"demo: {text}", file=sys.stderr)


def _fail(error: FoldlineError) -> int:
    """One line, as every command of foldline says it."""
    if "--json" in sys.argv:
        print(json.dumps({"error": view_of(error)}))
    _say(message_of(error))
    return exit_code_of(error)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except FoldlineError as error:
        sys.exit(_fail(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except subprocess.TimeoutExpired as error:
        sys.exit(f"demo: {error}")
