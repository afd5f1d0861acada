"""A history that nobody shaped, shaped as if its owner had done so."""

from foldline.projections.shaper import Shaper
from foldline.schemas.events import CompactionCompleted, ContextCleared, GoalSet
from foldline.schemas.recorded import Recorded
from tests.happenings import in_turn
from tests.projections.test_shaping import LONG, TINY, WORDS, acts, text_of
from tests.projections.test_tales import says, text


def on_branch(recorded: Recorded) -> Recorded:
    """The same event on a branch."""
    envelope = recorded.envelope.model_copy(update={"branch": "aside"})
    return recorded._replace(envelope=envelope)


def test_what_stands_on_a_branch_changes_no_shaped_context() -> None:
    """Nor is it told in a summary, nor what an owner would have recorded on the branch."""
    story = in_turn().given(says("one"))
    main, both = list(story.events), list(story.events)
    plain, shaper = Shaper(TINY, WORDS), Shaper(TINY, WORDS)
    for number in range(16):
        begun = story.seq
        acts(story, str(number), output=f"{LONG} end{number}.py")
        main += story.events[begun:]
        both += story.events[begun:]
        begun = story.seq
        acts(story, f"aside {number}", output=f"hidden {number}")
        story.given(GoalSet(blocks=text("hidden")), ContextCleared())
        both += [on_branch(recorded) for recorded in story.events[begun:]]
        context = shaper.shape(both)
        assert text_of(context) == text_of(plain.shape(main))
        assert "hidden" not in text_of(context)
    merged = [recorded.event for recorded in shaper.merged]
    assert sum(isinstance(event, CompactionCompleted) for event in merged) > 1
