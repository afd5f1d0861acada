"""Logs that take the same appends answer, hold and fold the same, to the byte."""

import shutil
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.processors.fold import initial, replay
from foldline.processors.open_log import open_log
from foldline.processors.stored import AuditableLog, Problem
from foldline.processors.verify import verify
from foldline.schemas.recorded import Append
from foldline.schemas.snapshots import state_hash
from foldline.settings import Settings
from foldline.testing import LogStory, make_append
from foldline.testing.samples import created, said, ticking
from tests.strategies import appends

SESSION = "session"
OFTEN = Settings(snapshot_every_events=3, batch_max=4)
"""Snapshots and transactions so small that a short story has several."""


@contextmanager
def logs() -> Generator[tuple[AuditableLog, list[AuditableLog]]]:
    """A log in memory and two in files, with clocks that tick alike."""
    folder = Path(tempfile.mkdtemp())
    urls = [f"{kind}:///{folder}/{kind}" for kind in ("sqlite", "jsonl")]
    for url in urls:
        open_log(url).close()
    memory = open_log("memory:", settings=OFTEN, clock=ticking())
    files = [open_log(url, settings=OFTEN, clock=ticking()) for url in urls]
    yield memory, files
    for file in files:
        file.close()
    shutil.rmtree(folder)


def beginnings() -> st.SearchStrategy[list[Append]]:
    """The creation of an owned or mirrored session."""
    return st.sampled_from(("OWNED", "MIRRORED")).map(
        lambda mode: [
            make_append(SESSION, created(mode), known_seq=0, epoch=int(mode == "OWNED"))
        ]
    )


@given(
    beginning=beginnings(),
    rest=st.lists(appends(session_id=SESSION), max_size=20),
    resent=st.lists(st.integers(min_value=0, max_value=20), max_size=4),
    cuts=st.sets(st.integers(min_value=0, max_value=24), max_size=4),
)
@settings(max_examples=60, deadline=None)
def test_the_same_appends_give_the_same_answers_bytes_and_states(
    beginning: list[Append], rest: list[Append], resent: list[int], cuts: set[int]
) -> None:
    story = beginning + rest
    story += [story[number] for number in resent if number < len(story)]
    with logs() as (memory, files):
        for part in parts(story, cuts):
            verdicts = memory.append(part)
            assert [file.append(part) for file in files] == [verdicts, verdicts]
        bodies = [event.body for event in memory.stored_events(SESSION)]
        state = memory.state(SESSION)
        assert state is not None
        for file in files:
            assert [event.body for event in file.stored_events(SESSION)] == bodies
            assert file.state(SESSION) == state
        folded = initial(SESSION)
        for recorded in files[0].structure(SESSION):
            folded = replay(folded, [recorded])
            for log in (memory, *files):
                kept = log.state(SESSION, at_seq=recorded.seq)
                assert kept is not None
                assert kept == folded
                assert state_hash(kept) == state_hash(folded)
        for file in files:
            again = open_log(file.url, settings=OFTEN)
            assert again.state(SESSION) == state
            assert again.sessions() == memory.sessions()
            assert wrong(again) == wrong(memory) == []
            again.close()


def wrong(log: AuditableLog) -> list[Problem]:
    """What verify finds, but for the blobs and checkpoints that chance made up."""
    made_up = ("blob ", "the checkpoint")
    return [p for p in verify(log).problems if not p.reason.startswith(made_up)]


def parts(story: Sequence[Append], cuts: set[int]) -> Iterator[Sequence[Append]]:
    """The story in batches, cut at these places."""
    start = 0
    for cut in [*sorted(cut for cut in cuts if cut < len(story)), len(story)]:
        yield story[start:cut]
        start = cut


def test_a_batch_above_the_limit_is_several_transactions_in_order() -> None:
    with logs() as (memory, files):
        memory.append([creation := make_append(SESSION, created(), known_seq=0)])
        story = LogStory(memory, session_id=SESSION)
        batch = [story.append(said(str(n)), known_seq=1) for n in range(10)]
        for log in (memory, *files):
            log.append([creation])
            assert [verdict.seq for verdict in log.append(batch)] == list(range(2, 12))
