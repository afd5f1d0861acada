"""Steering over HTTP: in the log before it is acknowledged, once for a key, or refused."""

import httpx2
import pytest

from foldline.schemas.events import SessionCancelled, SteeringApplied
from foldline.schemas.state import WINDOW
from foldline.testing import LogStory
from foldline.testing.samples import told
from tests.serving import Served


def path(story: LogStory) -> str:
    return f"/sessions/{story.session_id}/steering"


def test_steering_is_pending_as_its_senders(http: httpx2.Client, story: LogStory) -> None:
    answer = http.post(path(story), json={"text": "use nix"}).json()
    assert (answer["kind"], answer["recorded"]) == ("ACCEPTED", True)
    (steering,) = story.state.steering.values()
    assert (steering.mode, steering.seq) == ("INTERRUPT", answer["seq"])
    *_, last = story.log.events(story.session_id)
    assert (last.envelope.actor.kind, last.envelope.actor.id) == ("PERSON", "ann@example")


@pytest.mark.parametrize("others", [0, 2 * WINDOW])
def test_the_same_key_is_one_steering_however_long_after(
    http: httpx2.Client, story: LogStory, others: int
) -> None:
    body = {"text": "use nix", "mode": "ON_IDLE", "idempotency_key": "k"}
    first = http.post(path(story), json=body).json()
    told(story, others)
    again = http.post(path(story), json=body).json()
    assert (first["kind"], again["kind"]) == ("ACCEPTED", "DUPLICATE")
    assert first["seq"] == again["seq"]
    assert story.state.counts["SteeringReceived"] == 1


def test_a_key_of_steering_that_was_applied_long_ago_is_known(
    http: httpx2.Client, story: LogStory
) -> None:
    """And another one beside it is new, whatever waits or was applied."""
    keys = ["applied", "pending", "new"]
    bodies = [{"text": key, "mode": "ON_IDLE", "idempotency_key": key} for key in keys]
    first = http.post(path(story), json=bodies[0]).json()
    http.post(path(story), json=bodies[1])
    story.given(SteeringApplied(steering_event_id=first["event_id"]))
    told(story, 2 * WINDOW)
    kinds = [http.post(path(story), json=body).json()["kind"] for body in bodies]
    assert kinds == ["DUPLICATE", "DUPLICATE", "ACCEPTED"]


def test_a_session_that_ended_says_so(http: httpx2.Client, story: LogStory) -> None:
    """It is not acknowledged: whoever steers knows that nobody will hear it."""
    story.given(SessionCancelled(reason="lunch"))
    answer = http.post(path(story), json={"text": "use nix"}).json()
    assert (answer["kind"], answer["recorded"]) == ("CLOSED", False)


@pytest.mark.parametrize(
    "body", [{}, {"text": ""}, {"text": "x", "mode": "SOON"}, {"text": "x", "who": "me"}]
)
def test_what_says_nothing_is_refused(
    http: httpx2.Client, story: LogStory, body: dict[str, str]
) -> None:
    assert http.post(path(story), json=body).status_code == 422


@pytest.mark.parametrize(("token", "status"), [("fl_looker", 403), ("fl_other", 404)])
def test_who_may_not_append_may_not_steer(
    served: Served, story: LogStory, token: str, status: int
) -> None:
    with served.http(token) as client:
        assert client.post(path(story), json={"text": "x"}).status_code == status
