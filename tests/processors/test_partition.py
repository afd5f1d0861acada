"""A partition answers as a log on one machine does, whatever befalls its worker."""

from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.processors.memory_log import MemoryLog
from foldline.processors.partition import Limits
from foldline.schemas.recorded import Append
from foldline.schemas.snapshots import state_hash
from foldline.schemas.verdicts import Verdict
from foldline.settings import Settings
from foldline.testing import make_append
from foldline.testing.samples import created
from tests.partitions import BEGIN_US, Broker, Worker
from tests.strategies import appends

SESSION = "session"
SMALL = Limits(cached_sessions=100, snapshot_lag_events=5)


def beginnings() -> st.SearchStrategy[list[Append]]:
    """The creation of an owned or mirrored session."""
    return st.sampled_from(("OWNED", "MIRRORED")).map(
        lambda mode: [
            make_append(SESSION, created(mode), known_seq=0, epoch=int(mode == "OWNED"))
        ]
    )


def memory_log(clock: list[int]) -> MemoryLog:
    return MemoryLog(settings=Settings(url="memory:"), clock=lambda: clock[0])


@given(
    beginning=beginnings(),
    rest=st.lists(appends(session_id=SESSION), max_size=20),
    resent=st.lists(st.integers(min_value=0, max_value=20), max_size=4),
    faults=st.lists(st.sampled_from("aflx"), max_size=24),
    batch=st.integers(min_value=1, max_value=5),
)
@settings(max_examples=60, deadline=None)
def test_answers_bytes_and_states_are_those_of_the_memory_log_whatever_fails(
    beginning: list[Append],
    rest: list[Append],
    resent: list[int],
    faults: list[str],
    batch: int,
) -> None:
    story = beginning + rest
    story += [story[number] for number in resent if number < len(story)]
    broker = Broker()
    broker.control()
    broker.send(*story)
    clock = [0]
    memory = memory_log(clock)
    verdicts: list[Verdict] = []
    for number, append in enumerate(story):
        clock[0] = BEGIN_US + (number + 1) * 1000
        verdicts.extend(memory.append([append]))

    worker = Worker(broker, limits=SMALL)
    for fault in faults:
        if fault == "a":
            again = worker.abort(batch)
            assert worker.abort(batch) == again
        elif fault == "f":
            worker.flush()
        elif fault == "l":
            worker.lose_memory()
        else:
            worker.lose_everything()
        if worker.pending():
            worker.step(batch)
    worker.run(batch=batch)

    answered = [v.model_copy(update={"append_offset": -1}) for v in broker.answers()]
    assert answered == verdicts
    assert [v.append_offset for v in broker.answers()] == list(range(1, len(story) + 1))
    bodies = [event.body for event in memory.stored_events(SESSION)]
    assert broker.bodies(SESSION) == bodies
    held, state = worker.state(SESSION), memory.state(SESSION)
    assert held is not None
    assert state is not None
    assert held == state
    assert state_hash(held) == state_hash(state)
    for lose in (worker.lose_memory, worker.lose_everything):
        lose()
        assert worker.state(SESSION) == state
