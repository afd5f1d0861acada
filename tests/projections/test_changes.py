"""What tells two states apart: each field by its path, and nothing that is the same."""

from foldline.processors.open_log import open_log
from foldline.projections.changes import changes
from foldline.schemas.events import ToolCallRequested
from foldline.schemas.state import SessionState
from foldline.testing.log_story import LogStory
from foldline.testing.samples import created, said, started


def states() -> list[SessionState]:
    """The states of a short session, the empty one first."""
    log = open_log("memory:")
    story = LogStory(log)
    found = [SessionState(story.session_id)]
    request = ToolCallRequested(
        call_id="m:0", tool="send", args_hash="", message_id="a", position=0, arguments=()
    )
    for event in (created(), started(), said(), request):
        story.given(event)
        found.append(story.state)
    return found


def test_a_state_differs_from_itself_in_nothing() -> None:
    for state in states():
        assert changes(state, state) == []


def test_each_change_is_a_path_with_the_value_before_and_after() -> None:
    empty, made, running, _, asked = states()
    told = {change.path: change for change in changes(empty, made)}
    assert (told["agent"].before, told["agent"].after) == ("", "coder")
    assert told["counts.SessionCreated"].after == 1
    told = {change.path: change for change in changes(made, running)}
    assert (told["status"].before, told["status"].after) == ("CREATED", "RUNNING")
    assert told["turn"].before is None
    told = {change.path: change for change in changes(running, asked)}
    assert told["calls.m:0"].after["status"] == "REQUESTED"


def test_changes_backwards_are_the_same_with_before_and_after_exchanged() -> None:
    _, made, *_, asked = states()
    there = {(c.path, str(c.before), str(c.after)) for c in changes(made, asked)}
    back = {(c.path, str(c.after), str(c.before)) for c in changes(asked, made)}
    assert there == back
