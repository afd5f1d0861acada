"""recovery list, plan and run, on sessions whose harness was killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from foldline.producers.tools import Effect
from foldline.schemas.events import SessionResumed, ToolOutcomeResolved
from foldline.schemas.record_codec import RecordCodec
from foldline.schemas.state import COMPLETED, SUSPENDED, WAITING_APPROVAL
from foldline.schemas.topic_records import RecoveryAction
from foldline.testing.log_story import new_id
from tests import charging
from tests.charging_run import ROOT, Run
from tests.cluster.served import served_log
from tests.cluster.shared import Broker
from tests.kafka_checker import read

pytestmark = pytest.mark.crash

NewRun = Callable[[Effect], Run]
RECONCILERS = ("--reconcilers", "tests.recovery_kit:toolbox")
RESUME = ("--resume", "tests.recovery_kit:resume")


@pytest.fixture
def killed(tmp_path: Path) -> NewRun:
    """A session whose harness was killed after the effect, before its outcome."""

    def start(effect: Effect) -> Run:
        run = Run(f"sqlite:///{tmp_path}/sessions.db", tmp_path, effect)
        code, _ = run.run("run", CRASH_AT="CP_TOOL_AFTER_EFFECT:1")
        assert code == -signal.SIGKILL
        return run

    return start


def recovery(
    run: Run, *arguments: str, code: int = 0, **settings: str
) -> list[dict[str, Any]]:
    """`foldline recovery`, as a process; what it says with --json."""
    done = process(run, *arguments, **settings)
    out, err = done.communicate(timeout=60)
    assert done.returncode == code, (out, err)
    return [json.loads(line) for line in out.splitlines()]


def process(run: Run, *arguments: str, **settings: str) -> "subprocess.Popen[str]":
    """The command, started."""
    own = {k: v for k, v in os.environ.items() if not k.startswith("FOLDLINE_")}
    given = {f"FOLDLINE_{name}": value for name, value in settings.items()}
    return subprocess.Popen(
        [Path(sys.executable).with_name("foldline"), "recovery", *arguments, "--json"],
        cwd=ROOT,
        env=own
        | {"FOLDLINE_URL": run.url, "LEDGER": str(run.ledger), "EFFECT": run.effect}
        | {"FOLDLINE_START_BY_MS": "300"}
        | dict(run.environment)
        | given,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def done(said: list[dict[str, Any]]) -> list[str]:
    """The actions, in order."""
    return [line["action"] for line in said]


def test_a_session_that_stands_still_is_listed_planned_for_and_brought_to_its_end(
    killed: NewRun,
) -> None:
    run = killed("RECONCILABLE")
    (listed,) = recovery(run, "list")
    assert (listed["session_id"], listed["why"]) == ("charging", "owner_gone")
    (action,) = recovery(run, "plan", "charging")
    assert (action["action"], action["attempt"]) == ("Reconcile", 1)
    before = len(run.events())
    assert [line["session_id"] for line in recovery(run, "list")] == ["charging"]
    assert len(run.events()) == before
    said = recovery(run, "run", "--once", *RECONCILERS, *RESUME, code=1)
    assert done(said) == ["TAKEN", "RESOLVED", "RESUMED"]
    assert run.state().status == COMPLETED
    assert len(charging.ledger_of(run.ledger)) == 1
    assert recovery(run, "run", "--once") == []
    assert recovery(run, "list") == []


@pytest.mark.parametrize(
    "point",
    [
        "CP_RECOVERY_BEFORE_TAKE",
        "CP_RECOVERY_AFTER_TAKE",
        "CP_RECOVER_BEFORE_RECONCILE",
        "CP_RECOVER_AFTER_RECONCILE",
        "CP_RECOVER_AFTER_RESOLVED",
    ],
)
def test_recovery_that_is_killed_itself_is_begun_again_by_the_next(
    killed: NewRun, point: str
) -> None:
    run = killed("RECONCILABLE")
    recovery(
        run,
        "run",
        "--once",
        *RECONCILERS,
        *RESUME,
        code=-signal.SIGKILL,
        CRASH_AT=f"{point}:1",
    )
    recovery(run, "run", "--once", "--pause-ms", "0", *RECONCILERS, *RESUME, code=1)
    assert run.state().status == COMPLETED
    assert len(charging.ledger_of(run.ledger)) == 1
    resolved = [r for r in run.events() if isinstance(r.event, ToolOutcomeResolved)]
    assert len(resolved) == 1


def test_what_is_unsafe_is_asked_and_never_run_again(killed: NewRun) -> None:
    run = killed("UNSAFE")
    said = recovery(run, "run", "--once", *RECONCILERS, *RESUME, code=1)
    assert done(said) == ["TAKEN", "MARKED_UNKNOWN", "ASKED"]
    assert run.state().status == WAITING_APPROVAL
    assert recovery(run, "run", "--once", *RECONCILERS, *RESUME, code=1) == []
    assert len(charging.ledger_of(run.ledger)) == 1
    claims = [r for r in run.events() if isinstance(r.event, SessionResumed)]
    assert len(claims) == 1


def test_a_harness_that_never_gets_anywhere_is_not_started_for_ever(
    killed: NewRun,
) -> None:
    run = killed("RECONCILABLE")
    limits = ("--resumes-max", "2", "--pause-ms", "0")
    breaks = ("--resume", "tests.recovery_kit:breaks")
    seen: list[str] = []
    with process(run, "run", "--every-ms", "50", *limits, *RECONCILERS, *breaks) as working:
        assert working.stdout is not None
        while "PARKED" not in seen:
            seen.append(json.loads(working.stdout.readline())["action"])
        working.send_signal(signal.SIGTERM)
        assert working.wait(30) == 0
    assert seen.count("RESUME_FAILED") == 2
    state = run.state()
    assert (state.status, len(state.requests)) == (SUSPENDED, 1)


@pytest.mark.kafka
def test_on_kafka_too_and_a_topic_holds_what_was_done(
    broker: Broker, tmp_path: Path
) -> None:
    with served_log(broker, tmp_path) as log:
        run = Run(log.cluster.url, tmp_path, "RECONCILABLE", new_id(), log.environment)
        brief = {"LEASE_TTL_MS": "500", "LEASE_RENEW_MS": "100"}
        code, _ = run.run("run", CRASH_AT="CP_TOOL_AFTER_EFFECT:1", **brief)
        assert code == -signal.SIGKILL
        said: list[dict[str, Any]] = []
        options = ("--every-ms", "100", *RECONCILERS, *RESUME)
        with process(run, "run", *options) as working:
            assert working.stdout is not None
            while "RESUMED" not in done(said):
                said.append(json.loads(working.stdout.readline()))
            working.send_signal(signal.SIGTERM)
            assert working.wait(30) == 0
        assert run.state().status == COMPLETED
        assert len(charging.ledger_of(run.ledger)) == 1
        records = RecordCodec(log.registry)
        kept = [
            records.unframe_record(RecoveryAction, message.value())
            for partition in range(log.partitions)
            for message in read(log, log.names.recovery, partition)
        ]
    assert done(said) == [action.action for action in kept]
    assert done(said) == ["TAKEN", "RESOLVED", "RESUMED"]
    assert {(a.session_id, a.epoch) for a in kept} == {(run.session_id, 2)}
    (resolved,) = [action for action in kept if action.action == "RESOLVED"]
    assert (resolved.attempt, resolved.detail) == (1, "the ledger")


def test_it_makes_no_log_where_none_is(tmp_path: Path) -> None:
    run = Run(f"sqlite:///{tmp_path}/none/sessions.db", tmp_path, "UNSAFE")
    (refused,) = recovery(run, "run", "--once", code=3)
    assert refused["error"]["kind"] == "NoLogError"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--reconcilers", "nowhere"), "module:attribute"),
        (("--reconcilers", "no_such_module:x"), "is not loaded"),
        (("--reconcilers", "tests.recovery_kit:nothing"), "has no nothing"),
        (("--reconcilers", "tests.recovery_kit:ROOT"), "has no ROOT"),
        (("--reconcilers", "json:dumps"), "json:dumps raised TypeError"),
        (("--reconcilers", "json:JSONEncoder"), "is no Toolbox"),
        (("--resume", "tests.recovery_kit:toolbox"), "async def resume"),
        (("--every-ms", "1"), "50 or more"),
        (("--resumes-max", "-1"), "0 or more"),
        (("--pause-ms", "-1"), "0 or more"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_line(
    killed: NewRun, options: tuple[str, str], says: str
) -> None:
    run = killed("UNSAFE")
    failing = partial(process, run, "run", "--once")
    out, err = failing(*options).communicate(timeout=60)
    assert says in out + err
    assert "Traceback" not in err
