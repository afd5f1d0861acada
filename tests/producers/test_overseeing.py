"""Policies at work: what rules want is recorded once, whoever runs, dies or runs beside."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from foldline.errors import (
    AccessRefusedError,
    FoldlineError,
    LogUnavailableError,
    UncertainAppendError,
)
from foldline.processors.listing import LIMITS
from foldline.processors.open_log import open_log
from foldline.processors.stored import AuditableLog
from foldline.producers.client import connect
from foldline.producers.overseeing import Overseer
from foldline.producers.overseen import Look
from foldline.producers.oversight_positions import OversightPositions, positions_path
from foldline.projections.oversight import Policy, Rule, Seen, Wish, violation
from foldline.projections.oversight_rules import (
    Budget,
    ForbiddenTool,
    Limits,
    Reaction,
)
from foldline.schemas.choices import CancelTarget
from foldline.schemas.events import (
    PolicyViolation,
    SessionCancelled,
    ToolCallRequested,
    UserMessage,
)
from foldline.schemas.recorded import Append, Recorded
from foldline.schemas.state import WINDOW
from foldline.schemas.verdicts import Verdict
from foldline.testing import LogStory
from foldline.testing.samples import created, said, started, told
from tests import happenings as h
from tests.harness import QUICK
from tests.serving import people_of, serving_memory

FORBID = ForbiddenTool("no-deploy", ("deploy",))
STEER = ForbiddenTool("no-deploy", ("deploy",), reaction=Reaction("STEER"))
SAID = "PolicyViolation", "RECORDED"
COMMAND = "import sys; from foldline.cli import main; sys.exit(main())"


def cancelling(target: CancelTarget = "SESSION") -> ForbiddenTool:
    return ForbiddenTool("no-deploy", ("deploy",), reaction=Reaction("CANCEL", target))


@pytest.fixture
def log() -> AuditableLog:
    return open_log("memory:", settings=QUICK)


def tell(log: AuditableLog, session_id: str = "s", tool: str = "deploy") -> LogStory:
    """A session in whose open turn a tool was asked for."""
    story = LogStory(log, session_id=session_id)
    return story.given(created(), started(), h.request(tool=tool))


async def look(
    log: AuditableLog, *rules: Policy, path: Path | None = None, **options: Any
) -> Look:
    """One look by a runner of its own."""
    positions = OversightPositions.open(path or Path(":memory:"))
    try:
        async with Overseer(
            log, rules or (FORBID,), positions, settings=QUICK, **options
        ) as overseer:
            return await overseer.look()
    finally:
        positions.close()


def types_of(log: AuditableLog, session_id: str = "s") -> Counter[str]:
    return Counter(recorded.type for recorded in log.events(session_id))


def results(done: Look) -> list[tuple[str, str]]:
    return [(one.event_type, one.result) for one in done.done]


async def test_what_a_rule_wants_is_recorded_by_a_service(log: AuditableLog) -> None:
    tell(log)
    done = await look(log, STEER)
    assert results(done) == [
        SAID,
        ("SteeringReceived", "RECORDED"),
    ]
    violated, steered = list(log.events("s"))[-2:]
    assert isinstance(violated.event, PolicyViolation)
    assert (violated.event.rule, violated.event.subject_seq) == ("no-deploy", 3)
    actors = {(e.envelope.actor.kind, e.envelope.epoch) for e in (violated, steered)}
    assert actors == {("SERVICE", 0)}


async def test_a_restart_goes_on_where_it_was(log: AuditableLog, tmp_path: Path) -> None:
    story, path = tell(log), tmp_path / "positions.db"
    assert len((await look(log, path=path)).done) == 1
    assert (await look(log, path=path)).done == []
    story.given(h.request("m:1", tool="deploy"))
    assert [done.seq for done in (await look(log, path=path)).done] == [5]


async def test_a_runner_whose_positions_are_lost_records_nothing_twice(
    log: AuditableLog,
) -> None:
    """Also where the log has long forgotten its ids."""
    story = tell(log)
    for _ in range(2):
        await look(log, STEER)
        assert types_of(log)["PolicyViolation"] == 1
        told(story, WINDOW + 10)
    await look(log, STEER)
    assert (types_of(log)["PolicyViolation"], types_of(log)["SteeringReceived"]) == (1, 1)


async def test_runners_beside_each_other_record_once(log: AuditableLog) -> None:
    for number in range(5):
        tell(log, f"s{number}")
    await asyncio.gather(*(look(log, STEER) for _ in range(4)))
    for number in range(5):
        found = types_of(log, f"s{number}")
        assert (found["PolicyViolation"], found["SteeringReceived"]) == (1, 1)


async def test_a_stop_is_heard_by_the_session_and_by_its_subagents(
    log: AuditableLog,
) -> None:
    LogStory(log, session_id="child").given(created())
    story = LogStory(log, session_id="s").given(created(), started(), h.child("child"))
    story.given(h.request(tool="deploy"))
    await look(log, cancelling())
    state = log.state("s")
    assert state is not None
    assert state.cancellation is not None
    assert types_of(log, "child")["CancellationRequested"] == 1


@pytest.mark.parametrize("target", ["TURN", "CALL"])
async def test_what_would_stop_something_that_is_over_is_left_out(
    log: AuditableLog, target: CancelTarget
) -> None:
    tell(log).given(h.turn_ends("ABORTED"), started())
    done = await look(log, cancelling(target))
    assert results(done) == [
        SAID,
        ("CancellationRequested", "TOO_LATE"),
    ]


async def test_a_session_that_ended_before_the_rules_is_left_alone(
    log: AuditableLog, tmp_path: Path
) -> None:
    path = tmp_path / "positions.db"
    tell(log, "old").given(SessionCancelled(reason="r"))
    assert (await look(log, path=path)).sessions == 0
    tell(log, "new").given(SessionCancelled(reason="r"))
    done = await look(log, STEER, path=path)
    assert results(done) == [
        SAID,
        ("SteeringReceived", "TOO_LATE"),
    ]


async def test_a_mirrored_session_is_left_alone_unless_that_is_asked_for(
    log: AuditableLog,
) -> None:
    story = LogStory(log, session_id="m")
    story.given(created(mode="MIRRORED"), started(), h.request(tool="deploy"))
    assert (await look(log, STEER)).sessions == 0
    done = await look(log, STEER, mirrored=True)
    assert results(done) == [
        SAID,
        ("SteeringReceived", "TOO_LATE"),
    ]


async def test_sessions_of_every_tenant_are_judged_or_of_one(log: AuditableLog) -> None:
    for tenant in ("acme", "other"):
        story = LogStory(log, session_id=tenant, tenant=tenant)
        story.given(created(), started(), h.request(tool="deploy"))
    one = await look(log, tenant="acme")
    assert [(d.session_id, d.result) for d in one.done] == [("acme", "RECORDED")]
    every = await look(log)
    assert {(d.session_id, d.result) for d in every.done} == {
        ("acme", "RECORDED"),
        ("other", "RECORDED"),
    }
    assert types_of(log, "acme")["PolicyViolation"] == 1


async def test_a_rule_that_fails_keeps_no_other_session_from_being_judged(
    log: AuditableLog,
) -> None:
    def moody(seen: Seen, recorded: Recorded) -> Sequence[Wish]:
        if seen.state.session_id == "a" and isinstance(recorded.event, ToolCallRequested):
            raise ValueError("moody")
        return FORBID.judge(seen, recorded)

    tell(log, "a")
    tell(log, "b")
    done = await look(log, Rule("moody", moody))
    assert [(one.session_id, one.rule) for one in done.failed] == [("a", "moody")]
    assert [one.session_id for one in done.done] == ["b"]


async def test_a_rule_that_fails_takes_no_other_rule_of_its_session_with_it(
    log: AuditableLog, tmp_path: Path
) -> None:
    """It is told at each start; once mended, it judges from where it failed."""
    mended = False

    def moody(seen: Seen, recorded: Recorded) -> Sequence[Wish]:
        if isinstance(recorded.event, ToolCallRequested) and not mended:
            raise ValueError("moody")
        return FORBID.judge(seen, recorded)

    story, path = tell(log), tmp_path / "positions.db"
    rules = (Rule("moody", moody), FORBID)
    for _ in range(2):
        done = await look(log, *rules, path=path)
        assert [(one.session_id, one.rule) for one in done.failed] == [("s", "moody")]
        assert [one.rule for one in done.done] == ["no-deploy"]
        assert types_of(log)["PolicyViolation"] == 1
    mended = True
    story.given(h.request("m:1", tool="deploy"))
    await look(log, *rules, path=path)
    found = [r.event for r in log.events("s") if isinstance(r.event, PolicyViolation)]
    told_of = [(event.rule, event.subject_seq) for event in found]
    assert told_of == [("no-deploy", 3), ("moody", 3), ("moody", 5), ("no-deploy", 5)]
    assert (await look(log, *rules, path=path)).done == []


async def test_a_runner_that_may_not_append_ends_and_its_position_stays(
    tmp_path: Path,
) -> None:
    """Over HTTP, with a token that may only read; then with one that may append."""
    path = tmp_path / "positions.db"
    with serving_memory(people_of(tmp_path)) as served:
        tell(served.node.log)
        with (
            closing(served.log("fl_looker")) as reader,
            pytest.raises(AccessRefusedError),
        ):
            await look(reader, path=path)
        with closing(served.log("fl_ann")) as writer:
            assert results(await look(writer, path=path)) == [SAID]
            assert (await look(writer, path=path)).done == []
        assert types_of(served.node.log)["PolicyViolation"] == 1


async def test_a_rule_that_needs_content_is_given_it(log: AuditableLog) -> None:
    def shouts(_seen: Seen, recorded: Recorded) -> Sequence[Wish]:
        event = recorded.event
        loud = isinstance(event, UserMessage) and "!" in str(event.blocks)
        return [violation("loud")] if loud else ()

    LogStory(log, session_id="s").given(created(), said("hello!"))
    assert (await look(log, Rule("loud", shouts))).done == []
    assert len((await look(log, Rule("loud", shouts, content=True))).done) == 1


async def test_steering_that_finds_no_room_is_told_and_not_tried_again(
    log: AuditableLog, tmp_path: Path
) -> None:
    tell(log).given(*[h.steer() for _ in range(LIMITS["steering"])])
    path = tmp_path / "positions.db"
    done = await look(log, STEER, path=path)
    assert results(done)[1] == ("SteeringReceived", "REFUSED")
    assert (await look(log, STEER, path=path)).done == []


async def test_a_fork_is_judged_by_its_own_events(log: AuditableLog) -> None:
    tell(log)
    async with connect(log, settings=QUICK) as client:
        view = await client.open("s")
        fork = await view.fork(3, fork_id="fork")
        await fork.close()
    done = await look(log, Budget("calls", Limits(tool_calls=0)))
    assert [one.session_id for one in done.done] == ["s"]


async def test_a_log_that_is_away_is_asked_again(
    log: AuditableLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the first append is lost: it is recorded, and nobody knows."""
    tell(log)
    whole, lost = log.append, iter([True] * (QUICK.resend_max + 1))

    def append(appends: Sequence[Append]) -> list[Verdict]:
        verdicts = whole(appends)
        if next(lost, False):
            raise UncertainAppendError(log.url, "told to lose the answer")
        return verdicts

    monkeypatch.setattr(log, "append", append)
    stop, troubles, parts = asyncio.Event(), list[bool](), list[int]()

    def tell_and_stop(_done: Look, trouble: FoldlineError | None) -> None:
        troubles.append(trouble is not None)
        if trouble is None:
            stop.set()

    positions = OversightPositions.open(Path(":memory:"))
    async with Overseer(
        log, [STEER], positions, settings=QUICK, on_session=lambda: parts.append(1)
    ) as overseer:
        await overseer.run(stop, every_ms=10, told=tell_and_stop)
    positions.close()
    assert (troubles, len(parts)) == ([True, False], 2)
    assert (types_of(log)["PolicyViolation"], types_of(log)["SteeringReceived"]) == (1, 1)


async def test_a_partition_without_answers_keeps_no_other_session_waiting(
    log: AuditableLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody takes what is appended to the first session."""
    tell(log, "a")
    tell(log, "b")
    whole = log.append

    def append(appends: Sequence[Append]) -> list[Verdict]:
        if any(one.envelope.session_id == "a" for one in appends):
            raise LogUnavailableError(log.url, "told to be away")
        return whole(appends)

    monkeypatch.setattr(log, "append", append)
    positions = OversightPositions.open(Path(":memory:"))
    async with Overseer(log, [FORBID], positions, settings=QUICK) as overseer:
        for _ in range(2):
            with pytest.raises(LogUnavailableError):
                await overseer.look()
    positions.close()
    assert types_of(log, "b")["PolicyViolation"] == 1


def test_positions_are_those_of_a_log_and_of_a_set_of_rules(tmp_path: Path) -> None:
    def where(url: str, *rules: Policy) -> Path:
        return positions_path(tmp_path, log_url=url, rules=rules)

    rule = Rule("mine", Budget("b", Limits(turns=1)).judge)
    other = replace(rule, made_of="other options")
    places = {
        where("memory:", other),
        where("memory:", FORBID),
        where("memory:", STEER),
        where("memory:", FORBID, STEER),
        where("sqlite:///x", FORBID),
        where("memory:", rule),
    }
    assert len(places) == 6
    assert where("memory:", FORBID) in places


RULES = """
[[rule]]
name = "no-deploy"
kind = "forbidden-tool"
tools = ["deploy"]
action = "steer"
"""


@pytest.mark.crash
def test_a_runner_killed_before_its_position_is_moved_records_nothing_twice(
    tmp_path: Path,
) -> None:
    """Between two things that a rule wanted, then behind the last of them."""
    url = f"sqlite:///{tmp_path}/sessions.db"
    log = open_log(url)
    tell(log)
    log.close()
    rules = tmp_path / "policies.toml"
    rules.write_text(RULES, encoding="utf-8")
    state = {"FOLDLINE_URL": url, "FOLDLINE_STATE_DIR": str(tmp_path / "state")}
    arguments = ["policies", "run", "--rules", str(rules), "--once"]
    for point in ("CP_APPEND_AFTER_VERDICT", "CP_POLICIES_AFTER_APPEND", ""):
        crash = {"FOLDLINE_CRASH_AT": f"{point}:1"} if point else {}
        command = [sys.executable, "-c", COMMAND, *arguments]
        environment = os.environ | state | crash
        ran = subprocess.run(command, env=environment, check=False, timeout=60)
        assert ran.returncode == (-signal.SIGKILL if point else 1)
    log = open_log(url)
    assert (types_of(log)["PolicyViolation"], types_of(log)["SteeringReceived"]) == (1, 1)
    log.close()
