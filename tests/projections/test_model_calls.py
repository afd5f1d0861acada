"""Which model the conversation was held with, whoever else was asked besides."""

from contextlib import closing

import pytest

from foldline.processors.clock import wall_clock
from foldline.processors.memory_log import MemoryLog
from foldline.projections import reading
from foldline.projections.building import build
from foldline.projections.context_views import calibration_of, last_two_calls
from foldline.projections.model_calls import asked_of, main_calls
from foldline.projections.reading import last_asked, last_calls, request_of, sources_of
from foldline.schemas.events import (
    AssistantMessage,
    ModelCallStarted,
    RequestRef,
    Usage,
)
from foldline.settings import Settings
from foldline.testing import LogStory
from foldline.testing.samples import created, said, started
from tests.happenings import model_completes
from tests.projections.test_shaping import WORDS
from tests.projections.test_whole_contexts import aside, text


def asked(name: str, model: str, purpose: str = "TURN") -> ModelCallStarted:
    """A model call that was shown a context of another policy."""
    request = RequestRef(
        ranges=(),
        renderer="r",
        renderer_version=1,
        policy=f"of {model}",
        policy_version=1,
        instructions_event_ids=(),
        parameters_json="{}",
        sha256=b"",
    )
    return ModelCallStarted(
        model_call_id=name, purpose=purpose, provider="p", model=model, request=request
    )


def answered(name: str) -> AssistantMessage:
    """What the model of a call says."""
    return AssistantMessage(message_id=f"of {name}", model_call_id=name, blocks=text("ok"))


def test_who_makes_summaries_or_speaks_on_a_branch_is_not_the_conversations_model() -> None:
    """Their requests can be rebuilt all the same."""
    usage = Usage(input_tokens=100)
    with closing(MemoryLog(settings=Settings(), clock=wall_clock)) as log:
        story = LogStory(log).given(created(), started(), said("one"))
        upto = story.seq
        story.given(asked("a", "main"), model_completes("a", usage=usage), answered("a"))
        for number in range(6):
            name = f"s{number}"
            story.given(asked(name, "small", "COMPACTION"))
            story.given(model_completes(name, model="small", usage=usage))
        aside(story, asked("b", "side"), model_completes("b", usage=usage), answered("b"))
        name, events = story.session_id, list(log.events(story.session_id))
        last, sources = last_asked(log, name, story.seq), sources_of(log, name)
        assert last is not None
        assert sources is not None
        shaped = build(sources).shaped
        assert (last.model, shaped.model, shaped.policy) == ("main", "main", "of main")
        assert last_two_calls(log, name, None) == [upto]
        assert [call.model for call in main_calls(events)] == ["main"]
        assert calibration_of(sources, WORDS, model="main").of("main").samples == 1
        assert calibration_of(sources, WORDS, model="small").of("small").samples == 0
        assert [call.model_call_id for call in last_calls(log, name, 9)] == ["a"]
        calls = asked_of(events)
        assert len(calls) == 8
        assert all(request_of(log, name, call.model_call_id) for call in calls)
        assert request_of(log, name, "none") is None


def test_the_last_calls_are_found_from_the_end_wherever_they_lie(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where what is read first begins in the middle of one."""
    monkeypatch.setattr(reading, "LOOKED_BACK", 2)
    with closing(MemoryLog(settings=Settings(), clock=wall_clock)) as log:
        story = LogStory(log).given(created(), started(), said("one"))
        for name in "abc":
            story.given(asked(name, "m"), model_completes(name), answered(name))
        name = story.session_id
        calls = main_calls(list(log.events(name)))
        for at_seq in range(1, story.seq + 1):
            before = [call.upto_seq for call in calls if call.seq <= at_seq]
            for count in (1, 2, 5):
                found = last_calls(log, name, count, at_seq=at_seq)
                assert [call.upto_seq for call in found] == before[-count:]
