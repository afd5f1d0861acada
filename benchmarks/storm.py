"""The storm: sessions whose processes are killed and frozen at random; nothing is lost.

    python benchmarks/storm.py --seeds 1000 --json
    python benchmarks/storm.py --log jsonl:///~/storms --seeds 20 --json
    python benchmarks/storm.py --log kafka://127.0.0.1:9092 --seeds 20 --json
    python benchmarks/storm.py --seed 17

Seeded: sessions, tools, fates and what people say follow from the seed; the processes'
own timing does not. On local files each seed has a log of its own, in a folder of its own
below the URL's or --folder. On Kafka all share the log that FOLDLINE_... describes, whose
topics are there; its workers are started, and killed, here. The exit code is 1 where
anything was lost, or done twice, or left undone.
"""

import argparse
import gc
import json
import os
import signal
import sys
import time
import traceback
import uuid
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from measure import options, say, table
from storm_check import Outcome, check
from storm_course import Course, StormError
from storm_lives import settings
from storm_script import Script
from storm_workers import workers_killed

from foldline.places import JSONL, KAFKA, SQLITE
from foldline.schemas.codec import reader_of
from foldline.schemas.events import EVENT_TYPES
from foldline.schemas.registry import published_text

SEEDS = 200
SEEDS_QUICK = 20
AT_ONCE_PER_CORE = 4
"""A seed mostly waits: for leases, pauses, answers."""

AT_ONCE_ON_KAFKA = 6
SAID_EVERY_S = 5.0
LOCAL = {SQLITE: "sqlite:///{}/log.db", JSONL: "jsonl:///{}/sessions.jsonl"}
"""The URL of a seed's log in its folder, by how the URLs of such logs begin."""


@dataclass(slots=True)
class Storm:
    """All seeds of one run: so many at once, each in a process of its own."""

    log: str
    folder: Path
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    total: Outcome = field(default_factory=Outcome)
    failed: list[int] = field(default_factory=list[int])
    running: dict[int, int] = field(default_factory=dict[int, int])
    said_s: float = field(default_factory=time.monotonic)
    done: int = 0

    def go(self, seeds: Sequence[int], *, at_once: int) -> None:
        """Run them all."""
        left = list(reversed(seeds))
        try:
            while left or self.running:
                while left and len(self.running) < at_once:
                    self._begin(left.pop())
                self._await_one()
                self._say_how_far(len(seeds))
        finally:
            for pid in self.running:
                os.kill(pid, signal.SIGTERM)

    def _folder(self, seed: int) -> Path:
        return self.folder / f"seed-{seed}"

    def _begin(self, seed: int) -> None:
        pid = os.fork()
        if pid:
            self.running[pid] = seed
            return
        code = 1
        try:
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            self._be(seed)
            code = 0
        except KeyboardInterrupt:
            pass  # told to end
        except BaseException:  # noqa: BLE001 - it is this process's end, and is told
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _be(self, seed: int) -> None:
        """One seed, in its process; its outcome is a file."""
        folder = self._folder(seed)
        folder.mkdir(parents=True)
        script = Script(seed, self.run, folder)
        kind = kind_of(self.log)
        url = LOCAL[kind].format(folder) if kind else self.log
        outcome = Outcome()
        course = Course(url, script)
        try:
            course.run()
        except StormError as error:
            outcome.problems.append(str(error))
        outcome.kills, outcome.freezes = course.kills, course.freezes
        check(url, script, outcome)
        outcome.write(folder / "outcome")

    def _await_one(self) -> None:
        pid, status = os.wait()
        seed = self.running.pop(pid, None)
        if seed is None:
            return
        self.done += 1
        outcome = self._outcome(seed)
        self.total.add(outcome)
        if status or outcome.problems:
            self.failed.append(seed)
            self._tell(seed, outcome)

    def _outcome(self, seed: int) -> Outcome:
        path = self._folder(seed) / "outcome"
        if not path.exists():
            return Outcome(problems=["it broke off; see above"])
        return Outcome.read(path)

    def _tell(self, seed: int, outcome: Outcome) -> None:
        say(f"\nseed {seed} FAILED; its files: {self._folder(seed)}")
        for problem in outcome.problems:
            say(f"  {problem}")
        lives = self._folder(seed) / "lives.log"
        if lives.exists():
            say(lives.read_text(encoding="utf-8")[-4_000:])
        say(f"again: {sys.executable} {__file__} --log {self.log} --seed {seed}")

    def _say_how_far(self, seeds: int) -> None:
        if time.monotonic() - self.said_s < SAID_EVERY_S and self.done < seeds:
            return
        self.said_s = time.monotonic()
        total = self.total
        say(
            f"{self.done}/{seeds} seeds  {total.sessions} sessions  {total.kills} kills  "
            f"{total.freezes} freezes  {total.acknowledged} acknowledged  "
            f"{len(self.failed)} failed"
        )


def tell_counts(storm: Storm) -> None:
    """What happened, by how often."""
    total = storm.total
    say(f"{total.kills} kills, {total.freezes} freezes; recorded, and read back:")
    say(table(("what", "times"), sorted(total.types.items())))


def last_line(storm: Storm, seeds: int) -> dict[str, Any]:
    """What a program reads."""
    total = storm.total
    return {
        "seeds": seeds,
        "sessions": total.sessions,
        "kills": total.kills,
        "acknowledged_lost": total.acknowledged_lost,
        "unsafe_twice": total.unsafe_twice,
        "reconcilable_twice": total.reconcilable_twice,
        "parked": total.parked,
        "completed": total.completed,
    }


def warm_up() -> None:
    """Do once what every forked process shares."""
    settings()
    for name in EVENT_TYPES:
        reader_of(published_text(name))
    gc.collect()
    gc.freeze()


def kind_of(url: str) -> str:
    """How the URL of a log in files begins; empty for another."""
    return next((kind for kind in LOCAL if url.startswith(kind)), "")


def folder_of(url: str) -> Path | None:
    """The folder that a URL of logs in files names, if it names one.

    Raises:
        ValueError: it is no folder, or the URL is of no log that a storm can have.
    """
    kind = kind_of(url)
    if not kind:
        if url.startswith(KAFKA):
            return None
        wanted = "sqlite:///[FOLDER], jsonl:///[FOLDER] or kafka://HOST:PORT"
        raise ValueError(f"{url}: a storm has {wanted}")
    named = url.removeprefix(kind).removeprefix("///")
    if not named:
        return None
    folder = Path(named).expanduser().absolute()
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: each seed has a log of its own in a folder")
    return folder


def parsed() -> argparse.Namespace:
    """What it was told."""
    parser = options("Sessions whose processes are killed at random")
    parser.add_argument(
        "--log",
        default=SQLITE,
        help="sqlite:///[FOLDER] (the default) or jsonl:///[FOLDER]: a log for each seed, "
        "there or below --folder; or kafka://HOST:PORT, one for all",
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--at-once", type=int, help="how many side by side")
    arguments = parser.parse_args()
    try:
        arguments.folder = folder_of(arguments.log) or arguments.folder
    except (ValueError, RuntimeError) as error:  # the latter: nobody's home
        parser.error(f"--log: {error}")
    if arguments.seed is not None:
        arguments.first, arguments.seeds = arguments.seed, 1
    elif arguments.quick:
        arguments.seeds = min(arguments.seeds, SEEDS_QUICK)
    return arguments


def main() -> int:
    """Run the storm."""
    arguments = parsed()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    local = bool(kind_of(arguments.log))
    at_once = AT_ONCE_PER_CORE * len(os.sched_getaffinity(0)) if local else AT_ONCE_ON_KAFKA
    at_once = arguments.at_once or at_once
    arguments.folder.mkdir(parents=True, exist_ok=True)
    storm = Storm(arguments.log, Path(mkdtemp(dir=arguments.folder, prefix="storm-")))
    warm_up()
    with nullcontext() if local else workers_killed(arguments.log, storm.folder) as killed:
        storm.go(seeds, at_once=at_once)
    storm.total.kills += sum(killed or ())
    tell_counts(storm)
    if not storm.failed:
        rmtree(storm.folder)
    if arguments.json:
        print(json.dumps(last_line(storm, len(seeds))))
    return 1 if storm.failed else 0


if __name__ == "__main__":
    sys.exit(main())
