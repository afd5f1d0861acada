"""Stopping over HTTP: in the log before it is acknowledged, and down the tree."""

from typing import Any

import httpx2
import pytest

from foldline.errors import SessionTruncatedError
from foldline.processors.clock import wall_clock
from foldline.processors.memory_log import MemoryLog
from foldline.producers.client import connect
from foldline.schemas.events import SessionCancelled
from foldline.schemas.state import SessionState
from foldline.settings import Settings
from foldline.testing import LogStory
from foldline.testing.subagent_contract import asked, begun
from tests.serving import Served, serving


def path(session_id: str) -> str:
    return f"/sessions/{session_id}/cancel"


def test_a_request_to_stop_is_its_senders(http: httpx2.Client, story: LogStory) -> None:
    answer = http.post(path(story.session_id), json={"reason": "lunch"}).json()
    assert (answer["kind"], answer["recorded"]) == ("ACCEPTED", True)
    wanted = story.state.cancellation
    assert wanted is not None
    assert (wanted.target, wanted.reason, wanted.seq) == ("SESSION", "lunch", answer["seq"])
    *_, last = story.log.events(story.session_id)
    assert (last.envelope.actor.kind, last.envelope.actor.id) == ("PERSON", "ann@example")


@pytest.mark.parametrize("target", ["SESSION", "TURN", "CALL"])
async def test_what_is_stopped_takes_the_subagents_along_that_work_on_it(
    http: httpx2.Client, served: Served, target: str
) -> None:
    """And theirs; asked twice, each of them has one request."""
    log = served.node.log
    async with connect(log) as client:
        parent, turn, call, child = await begun(client)
        session_id = parent.session_id
        async with turn, child.turn("Look.") as inner:
            (below,) = await asked(inner)
            grandchild = await child.subagent(below, agent="digger")
            body: dict[str, Any] = {"target": target, "reason": "lunch"}
            if target == "CALL":
                body["target_id"] = call.call_id
            body |= {"event_id": "01890a5d-ac96-774b-bcce-b302099a8057", "known_seq": 1}
            kinds = [
                http.post(path(session_id), json=body).json()["kind"] for _ in range(2)
            ]
            assert kinds == ["ACCEPTED", "DUPLICATE"]
            for session in (child, grandchild):
                state = await session.state()
                assert state.cancellation is not None
                assert state.counts["CancellationRequested"] == 1
            turn.leave()
            inner.leave()


class LosingLog(MemoryLog):
    """A log that has lost events of some sessions."""

    def __init__(self) -> None:
        super().__init__(settings=Settings(), clock=wall_clock)
        self.lost: set[str] = set()

    def state(self, session_id: str, *, at_seq: int | None = None) -> SessionState | None:
        if session_id in self.lost:
            raise SessionTruncatedError(
                session_id,
                topic="events",
                tenant="default",
                known_seq=0,
                next_seq=0,
                needed=0,
                low=9,
                unrecoverable=True,
            )
        return super().state(session_id, at_seq=at_seq)


async def test_a_subagent_that_lost_events_keeps_no_other_from_being_stopped() -> None:
    log = LosingLog()
    async with connect(log) as client:
        parent = await client.create(agent="lead")
        async with parent.turn("go") as turn:
            children = [
                await parent.subagent(call, agent="scout") for call in await asked(turn, 2)
            ]
            log.lost.add(children[0].session_id)
            with serving(log) as served, served.http() as http:
                answer = http.post(path(parent.session_id), json={})
            assert (answer.status_code, answer.json()["recorded"]) == (200, True)
            assert (await children[1].state()).cancellation is not None
            turn.leave()
    log.close()


async def test_what_an_ended_session_has_left_behind_is_stopped(
    http: httpx2.Client, served: Served
) -> None:
    async with connect(served.node.log) as client:
        parent, turn, _, child = await begun(client)
        async with turn:
            pass
        await parent.append(SessionCancelled(reason="lunch"))
        answer = http.post(path(parent.session_id), json={"reason": "really"}).json()
        assert answer["kind"] == "CLOSED"
        wanted = (await child.state()).cancellation
        assert wanted is not None
        assert wanted.reason == "really"


def test_a_session_that_ended_says_so(http: httpx2.Client, story: LogStory) -> None:
    story.given(SessionCancelled(reason="lunch"))
    answer = http.post(path(story.session_id), json={}).json()
    assert (answer["kind"], answer["recorded"]) == ("CLOSED", False)


@pytest.mark.parametrize(
    "body",
    [{"target": "CALL"}, {"target": "TURN", "target_id": "c"}, {"target": "WORLD"}],
)
def test_what_says_not_what_is_to_stop_is_refused(
    http: httpx2.Client, story: LogStory, body: dict[str, str]
) -> None:
    assert http.post(path(story.session_id), json=body).status_code == 422


@pytest.mark.parametrize(("token", "status"), [("fl_looker", 403), ("fl_other", 404)])
def test_who_may_not_append_may_stop_nobody(
    served: Served, story: LogStory, token: str, status: int
) -> None:
    with served.http(token) as client:
        assert client.post(path(story.session_id), json={}).status_code == status
    assert story.state.cancellation is None
