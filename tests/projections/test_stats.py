"""Many sessions summed up: why they ended, what failed where, what success took."""

from collections import Counter
from html.parser import HTMLParser
from xml.dom import minidom

import pytest

from foldline.projections.stats import NAMES_MAX, Stats
from foldline.projections.stats_after import AFTER_DENIAL
from foldline.projections.stats_endings import BAD, ENDINGS, GOOD, OPEN
from foldline.projections.stats_failures import LAYERS, Failure, Failures
from foldline.projections.stats_html import page_of, short_number
from foldline.projections.stats_views import COLUMNS, row_of, view_of
from foldline.projections.stats_walk import KINDS_MAX, SessionWalk, Told
from foldline.schemas.envelope import Actor
from foldline.schemas.events import (
    EVENT_TYPES,
    AssistantMessage,
    CancellationRequested,
    KnownEvent,
    ModelCallFailed,
    PermissionDenied,
    SessionCancelled,
    SessionCompleted,
    SessionFailed,
    SessionResumed,
    SessionSuspended,
    ToolExecutionFailed,
)
from tests import happenings as h
from tests.samples import SAMPLES
from tests.story import PERSON, Story, Writer

ANSWER = AssistantMessage(message_id="a", blocks=())


def told(story: Story) -> Told:
    walk = SessionWalk(story.session_id)
    for recorded in story.events:
        walk.take(recorded)
    return walk.told()


def stats_of(*stories: Story) -> Stats:
    stats = Stats()
    for story in stories:
        stats.add(told(story))
    return stats


def same(name: str) -> str:
    return name


def failing(layer: str, error_type: str = "E") -> ToolExecutionFailed:
    return ToolExecutionFailed(call_id=h.CALL, layer=layer, error_type=error_type)


# --- why they ended ------------------------------------------------------------------

STORIES = {
    "NOT_BEGUN": h.session,
    "IN_TURN": h.in_turn,
    "IN_MODEL_CALL": lambda: h.in_turn().given(h.model_starts()),
    "IN_TOOL": h.running,
    "WAITS_FOR_PERSON": h.waiting,
    "SUSPENDED": lambda: h.session().given(SessionSuspended(reason="r")),
    "TURN_DONE": lambda: h.in_turn().given(h.turn_ends()),
    "TURN_FAILED": lambda: h.in_turn().given(h.turn_ends("FAILED")),
    "TURN_ABORTED": lambda: h.running().given(h.turn_ends("ABORTED")),
    "TURN_LIMIT": lambda: h.in_turn().given(h.turn_ends("LIMIT")),
    "COMPLETED": lambda: h.in_turn().given(h.turn_ends(), SessionCompleted()),
    "FAILED": lambda: h.in_turn().given(SessionFailed(error_type="E")),
    "CANCELLED": lambda: h.in_turn().given(SessionCancelled(reason="lunch")),
    "ANSWERED": lambda: h.session(mode="MIRRORED").given(h.turn(), ANSWER),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_session_ended_for_one_of_these_reasons(ending: str) -> None:
    found = told(STORIES[ending]())
    assert (found.ending, found.verdict) == (ending, ENDINGS[ending][0])


def test_an_owned_session_has_not_answered_before_its_turn_is_over() -> None:
    """Its owner may have died just then; a transcript says no more than that."""
    assert told(h.in_turn().given(ANSWER)).ending == "IN_TURN"


def test_a_transcript_that_asked_for_a_tool_last_has_not_answered() -> None:
    mirrored = h.session(mode="MIRRORED").given(h.turn(), ANSWER, h.request())
    assert told(mirrored).ending == "IN_TOOL"


def test_the_reason_of_an_end_is_told() -> None:
    assert told(STORIES["CANCELLED"]()).reason == "lunch"
    assert told(STORIES["FAILED"]()).reason == "E"


# --- where it failed -----------------------------------------------------------------

FAILURES: list[tuple[KnownEvent, str]] = [
    (h.model_fails(), "MODEL"),
    (h.validated(valid=False), "MODEL"),
    (h.failed(), "TOOL"),
    (failing("HARNESS"), "HARNESS"),
    (failing("ENVIRONMENT"), "INFRASTRUCTURE"),
    (h.timed_out(), "INFRASTRUCTURE"),
    (h.unknown(), "INFRASTRUCTURE"),
    (SessionResumed(reason="crash"), "INFRASTRUCTURE"),
    (h.deny(), "PERMISSION"),
    (h.expired(), "PERMISSION"),
    (PermissionDenied(decided_by="POLICY", policy="interrupt"), "PERSON"),
    (CancellationRequested(target="TURN"), "PERSON"),
    (h.looped(), "POLICY"),
    (h.violated(), "POLICY"),
    (h.turn_ends("LIMIT"), "POLICY"),
    (h.compaction_fails(), "HARNESS"),
    (SessionFailed(error_type="E"), "HARNESS"),
]


def failure_of(event: KnownEvent, *, story: Story | None = None) -> Failure | None:
    """What an event says that a person appends to a story, which else is in a turn."""
    story = story or h.in_turn()
    last = story.events[-1]
    person = Actor(kind="PERSON", id="somebody")
    envelope = last.envelope.model_copy(update={"actor": person})
    return Failures().take(last._replace(event=event, envelope=envelope), story.state)


@pytest.mark.parametrize(("event", "layer"), FAILURES, ids=lambda one: type(one).__name__)
def test_a_failure_has_a_layer(event: KnownEvent, layer: str) -> None:
    found = failure_of(event)
    assert found is not None
    assert found.layer == layer
    assert found.layer in LAYERS


def test_a_session_taken_between_two_turns_lost_nobody() -> None:
    assert failure_of(SessionResumed(reason="r"), story=h.session()) is None


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_no_event_of_any_type_breaks_anything(name: str) -> None:
    failure_of(SAMPLES[name])


SERVICE = Writer("policies", 0, "SERVICE")

STOPS = {
    "PERSON": (PERSON, CancellationRequested(target="TURN")),
    "POLICY": (SERVICE, CancellationRequested(target="TURN")),
}


@pytest.mark.parametrize("layer", STOPS)
def test_what_is_stopped_is_stopped_by_whoever_asked(layer: str) -> None:
    writer, event = STOPS[layer]
    story = h.running().given(h.model_starts())
    story.when(event, by=writer)
    story.given(h.cancelled(), h.model_is_cancelled(), h.turn_ends("ABORTED"))
    failures = told(story).failures
    assert {one.kind for one in failures} == {
        "turn to be stopped",
        "tool cancelled",
        "model call cancelled",
    }
    assert {one.layer for one in failures} == {layer}


def test_what_steering_of_a_policy_interrupts_is_stopped_by_it_in_that_turn_only() -> None:
    story = h.running()
    story.when(h.steer(), by=SERVICE)
    story.given(h.cancelled(), h.turn_ends("ABORTED"), h.turn())
    story.given(h.request("n:0"), h.start("n:0"), h.cancelled("n:0"))
    assert [failure.layer for failure in told(story).failures] == ["POLICY", "PERSON"]


def test_the_model_call_of_a_lost_owner_was_stopped_by_nobody() -> None:
    story = h.in_turn().given(h.model_starts())
    story.take("second", SessionResumed(reason="crash"))
    story.given(h.model_is_cancelled())
    assert {failure.layer for failure in told(story).failures} == {"INFRASTRUCTURE"}


def test_failures_are_counted_with_the_sessions_that_went_well_all_the_same() -> None:
    well = h.running().given(h.failed(), h.turn_ends(), SessionCompleted())
    not_well = h.running().given(h.failed(), SessionFailed(error_type="E"))
    stats = stats_of(well, not_well)
    failed = stats.layers["TOOL"]
    assert (failed.count, failed.sessions) == (2, Counter({GOOD: 1, BAD: 1}))
    assert Failure("HARNESS", "E") in stats.failures


def test_what_people_may_make_up_is_bounded() -> None:
    """Agents, kinds of failures: beyond a number they are others."""
    stats = Stats()
    for number in range(NAMES_MAX + 20):
        stats.add(told(h.session(agent=f"agent-{number}")))
    assert len(stats.agents) == NAMES_MAX + 1
    story = h.in_turn()
    for number in range(KINDS_MAX + 5):
        story.given(h.model_starts(f"m{number}"))
        name = f"m{number}"
        story.given(ModelCallFailed(model_call_id=name, error_type=f"E{number}"))
    assert len(told(story).failures) == KINDS_MAX + 1


# --- what came after -----------------------------------------------------------------


def denied() -> Story:
    return h.with_call(args_hash="x").given(h.ask(args_hash="x"), h.deny())


AFTER = {
    "ASKED_AGAIN": [h.request("m:1", args_hash="x")],
    "OTHER_CALL": [h.model_starts("m2"), h.request("m:1", args_hash="y")],
    "PERSON_SPOKE": [h.user(), h.request("m:1", args_hash="x")],
    "SERVICE_SPOKE": [h.request("m:1", args_hash="x")],
    "TURN_ENDED": [h.turn_ends("ABORTED")],
    "SESSION_ENDED": [SessionCancelled(reason="r")],
    "NOTHING": [],
}


@pytest.mark.parametrize("what", AFTER_DENIAL)
def test_what_came_first_after_a_denial(what: str) -> None:
    story = denied()
    if what == "SERVICE_SPOKE":
        story.when(h.steer("NEXT_TURN"), by=SERVICE)
    assert told(story.given(*AFTER[what])).denials == Counter({what: 1})


def test_calls_around_a_compaction_are_compared() -> None:
    story = h.in_turn()
    for number in range(4):
        call_id = f"m:{number}"
        story.given(h.request(call_id, args_hash=str(number)), h.start(call_id))
        story.given(h.failed(call_id) if number == 0 else h.done(call_id))
    story.given(h.model_starts(), h.model_completes())
    story.given(h.compaction_starts(story.seq), h.compaction(to_seq=3, base_seq=story.seq))
    for number in range(4, 6):
        call_id = f"m:{number}"
        story.given(h.request(call_id, args_hash="3"), h.start(call_id), h.done(call_id))
    found = told(story).compactions
    assert (found.count, found.calls_before, found.failed_before) == (1, 4, 1)
    assert (found.calls_after, found.failed_after) == (2, 0)
    assert (found.asked_after, found.repeated_after) == (2, 2)


# --- what it took, and how it is shown -----------------------------------------------


def working(calls: int) -> Story:
    story = h.in_turn()
    for number in range(calls):
        usage = {"input_tokens": 100, "output_tokens": 10}
        name = f"m{number}"
        story.given(h.model_starts(name), h.model_completes(name, usage=usage))
    return story.given(h.turn_ends(), SessionCompleted())


def test_what_success_took_is_that_of_the_sessions_that_went_well() -> None:
    stats = stats_of(working(2), working(4), working(6), h.running())
    took = stats.took[GOOD]
    assert (took.model_calls.count, took.model_calls.quantile(0.5)) == (3, 4)
    assert took.tokens.total == 12 * 110
    assert stats.took[OPEN].model_calls.count == 1
    assert stats.spent.model_calls == 12


def test_the_object_for_machines_adds_up() -> None:
    stats = stats_of(working(2), denied(), h.running().given(h.failed()))
    view = view_of(stats, clean=same)
    assert (
        view["sessions"] == sum(view["endings"].values()) == sum(view["verdicts"].values())
    )
    assert view["denials"]["count"] == 1
    assert [tool["tool"] for tool in view["tools"]] == ["send_mail"]
    assert view["took"][GOOD]["tokens"]["max"] == 220


def test_a_row_has_a_cell_for_each_column_and_no_formula() -> None:
    row = row_of(told(h.session(agent="=HYPERLINK(1)")), clean=same)
    assert len(row) == len(COLUMNS)
    assert row[COLUMNS.index("agent")] == "'=HYPERLINK(1)"


def some_stats() -> Stats:
    """Sessions with everything that the page has a plot or a table for."""
    stats = stats_of(*(story() for story in STORIES.values()), *map(working, range(30)))
    for what in AFTER_DENIAL:
        stats.add(told(denied().given(*AFTER[what])))
    return stats


class _Page(HTMLParser):
    """Every tag of a page, and what it would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.fetched += [name for name, _ in attrs if name in ("src", "href", "data")]


def test_the_page_is_one_file_with_plots_that_loads_nothing() -> None:
    page = page_of(stats_of(working(2), denied(), working(9)), clean=same, about="all")
    read = _Page()
    read.feed(page)
    assert read.fetched == []
    assert (read.tags["svg"], read.tags["script"], read.tags["link"]) == (6, 0, 0)
    for plot in page.split("<svg")[1:]:
        minidom.parseString("<svg" + plot.partition("</svg>")[0] + "</svg>")  # noqa: S318 - our own
    assert "prefers-color-scheme:dark" in page
    assert "default-src 'none'" in page


def test_what_somebody_named_is_escaped_wherever_it_stands() -> None:
    name = "<script>alert(1)</script>"
    story = h.in_turn().given(h.request(tool=name), h.start(), failing("TOOL", name))
    story = story.given(
        h.model_starts(), ModelCallFailed(model_call_id="m", error_type=name)
    )
    page = page_of(stats_of(story, h.session(agent=name)), clean=same, about=name)
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 4


def test_the_page_of_nothing_is_a_page() -> None:
    assert "Nothing was denied." in page_of(Stats(), clean=same, about="all")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "0"),
        (7, "7"),
        (12.34, "12.3"),
        (5_600, "5.6 k"),
        (7_800_000, "7.8 M"),
        (3e9, "3 G"),
    ],
)
def test_a_number_is_told_in_few_digits(number: float, said: str) -> None:
    assert short_number(number) == said
