"""A fleet's windows as JSON and for Prometheus: what was asked for, or why it cannot be."""

import time

import pytest
from prometheus_client.parser import text_string_to_metric_families as parsed

from foldline.processors.worker_health import BadQueryError
from foldline.projections import fleet_text
from foldline.projections.fleet_folding import FleetFolding
from foldline.projections.fleet_text import FleetMetrics, FleetPages
from foldline.projections.metric_names import COUNTER, FLEET, MICROS
from foldline.schemas.events import ToolCallRequested, TurnStarted
from foldline.settings import Settings
from tests import happenings as h
from tests.story import BEGIN_US, Story


def nothing() -> None:
    """The row of a session that has none."""


def fleet_of(*stories: Story) -> tuple[FleetFolding, FleetPages]:
    settings = Settings()
    folding = FleetFolding(settings)
    for story in stories:
        for offset, recorded in enumerate(story.events):
            folding.take(0, offset, recorded, row=nothing, now_us=BEGIN_US)
    return folding, FleetPages(folding, settings)


def looping() -> Story:
    """A session with three turns, which calls the same thing in each; the last is open."""
    story = h.session()
    for number in range(3):
        request = ToolCallRequested(
            call_id=f"{number}",
            tool="ls",
            args_hash="h",
            message_id="m",
            position=0,
            arguments=(),
        )
        story.given(TurnStarted(trigger="USER"), request)
        if number < 2:
            story.given(h.turn_ends("ABORTED"))
    return story


def test_windows_are_found_by_kind_name_size_and_time() -> None:
    _, pages = fleet_of(looping())
    [agent, tool] = pages.windows("size_s=60")["windows"]
    assert (agent["by"], agent["name"], agent["calls"], agent["errors"]) == (
        "agent",
        "coder",
        2,
        2,
    )
    assert (tool["by"], tool["name"], tool["loops"]) == ("tool", "ls", 1)
    assert pages.windows("by=tool&size_s=60")["windows"] == [tool]
    assert pages.windows("name=coder&size_s=60")["windows"] == [agent]
    assert pages.windows(f"size_s=60&since_s={agent['end_s']}")["windows"] == []
    assert pages.windows("size_s=60&limit=1")["more"] == 1
    assert len(pages.windows("size_s=300&step_s=60&by=tool")["windows"]) == 5


@pytest.mark.parametrize(
    "query",
    ["by=colour", "size_s=61", "step_s=0", "size_s=60&step_s=120", "limit=x", "what=1"],
)
def test_what_cannot_be_given_is_said_by_name(query: str) -> None:
    _, pages = fleet_of()
    with pytest.raises(BadQueryError) as caught:
        pages.windows(query)
    assert caught.value.name in query


def test_overlapping_windows_that_cost_too_much_are_refused_before_they_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, pages = fleet_of(looping())  # two panes
    monkeypatch.setattr(fleet_text, "MERGES_MAX", 1_000)
    with pytest.raises(BadQueryError, match="since_s: later"):
        pages.windows("size_s=60000&step_s=60")
    assert pages.windows("size_s=60000&step_s=60&name=ls")["more"] == 0
    assert len(pages.windows("size_s=60000&step_s=120")["windows"]) == 1_000
    later = BEGIN_US // MICROS + 120_000
    assert pages.windows(f"size_s=60000&step_s=60&since_s={later}")["windows"] == []
    monkeypatch.setattr(fleet_text, "MERGES_MAX", 0)
    assert len(pages.windows("size_s=60000")["windows"]) == 2


def test_the_latest_loops_are_listed_by_session() -> None:
    story = looping()
    _, pages = fleet_of(story)
    [loop] = pages.loops(f"session={story.session_id}")["loops"]
    assert (loop["kind"], loop["tool"], loop["count"]) == ("SAME_CALL", "ls", 3)
    assert pages.loops("session=other")["loops"] == []


def test_prometheus_reads_every_name_and_the_latest_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = looping()
    folding, pages = fleet_of(story)
    end_s = story.events[-1].envelope.recorded_at / MICROS + 60
    monkeypatch.setattr(time, "time", lambda: end_s)
    text = FleetMetrics(folding, pages, lambda: {0: 7}).text().decode()
    families = {family.name: family for family in parsed(text)}
    assert set(families) == {family.shown for family in FLEET.values()}
    assert all(
        families[family.shown].type == family.kind == COUNTER
        for family in FLEET.values()
        if family.kind == COUNTER
    )
    loops = {
        tuple(sample.labels.values()): sample.value
        for sample in families["foldline_fleet_loops"].samples
    }
    assert loops == {("agent", "coder"): 1.0, ("tool", "ls"): 1.0}
    [lag] = families["foldline_fleet_lag_records"].samples
    assert (lag.labels, lag.value) == ({"partition": "0"}, 7.0)
