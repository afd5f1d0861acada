"""What a log that several processes open must do besides `LogContract`.

class TestMyLog(SharedLogContract):
    @pytest.fixture
    def url(self, tmp_path):
        return f"my:{tmp_path}/log"

    @pytest.fixture
    def open_url(self):
        return open_my_log          # a function of a module: processes import it

`MachineLogContract` is for logs of one machine: there, a killed owner's lease ends at
once. Elsewhere nobody can tell a killed owner from a silent one.
"""

import multiprocessing
import os
import signal
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.context import SpawnContext

import pytest

from foldline.errors import LogUnavailableError
from foldline.processors.log import Lease, Log
from foldline.processors.open_log import open_log
from foldline.schemas.verdicts import ACCEPTED, CONFLICT, DUPLICATE
from foldline.testing.log_story import LogStory, new_id
from foldline.testing.racing import ROUND_TIMEOUT_S, OpenLog, lean_on_a_lease, race
from foldline.testing.samples import created, said, started

RACERS = 2
LONG_MS = 600_000
REFUSED = 7


class SharedLogContract:
    """Inherit it and give a `url` fixture, and `open_url` for a log of your own."""

    races = 1_000
    """How many rounds two processes race."""

    @pytest.fixture
    def url(self) -> str:
        """Override: the URL of a log; it may hold what other tests recorded."""
        raise NotImplementedError

    @pytest.fixture
    def open_url(self) -> OpenLog:
        """Override for a log of your own: a function of a module that opens a URL."""
        return open_log

    @pytest.fixture
    def processes(self) -> SpawnContext:
        """New processes that share nothing with this one."""
        return multiprocessing.get_context("spawn")

    def test_what_was_accepted_is_there_after_reopening(
        self, url: str, open_url: OpenLog
    ) -> None:
        log = open_url(url)
        story = LogStory(log).given(created(), started(), said("remember me"))
        resent = story.append(said())
        story.send([resent]).then(ACCEPTED)
        bodies = [recorded.body for recorded in log.events(story.session_id)]
        state = story.state
        log.close()
        again = open_url(url)
        assert again.state(story.session_id) == state
        assert [r.body for r in again.events(story.session_id)] == bodies
        assert again.append([resent])[0].kind == DUPLICATE
        again.close()

    def test_two_open_logs_see_each_others_appends(
        self, url: str, open_url: OpenLog
    ) -> None:
        one, two = open_url(url), open_url(url)
        here = LogStory(one).given(created(), started())
        there = LogStory(two, session_id=here.session_id)
        for n in range(3):
            here.given(said(f"here {n}"))
            there.given(said(f"there {n}"))
        assert here.seq == there.seq == 8
        (last,) = one.follow(here.session_id, after_seq=7, timeout_ms=30_000)
        assert last.seq == 8
        assert one.state(here.session_id) == two.state(here.session_id)
        one.close()
        two.close()

    @pytest.mark.slow
    def test_of_two_processes_that_race_one_seq_exactly_one_wins(
        self, url: str, open_url: OpenLog, processes: SpawnContext
    ) -> None:
        log = open_url(url)
        story = LogStory(log).given(created())
        with (
            multiprocessing.Manager() as manager,
            ProcessPoolExecutor(RACERS, mp_context=processes) as pool,
        ):
            barrier = manager.Barrier(RACERS)
            racers = [
                pool.submit(race, open_url, url, story.session_id, self.races, barrier)
                for _ in range(RACERS)
            ]
            results = [racer.result() for racer in racers]
        for kinds in zip(*results, strict=True):
            assert sorted(kinds) == [ACCEPTED, CONFLICT]
        assert story.seq == self.races + 1
        log.close()

    @pytest.mark.crash
    def test_a_frozen_owners_lease_dies_after_its_time_to_live(
        self, url: str, open_url: OpenLog, processes: SpawnContext
    ) -> None:
        log = open_url(url)
        ttl_ms = 100
        name = new_id()
        owner = _owner(url, open_url, processes, session_id=name, ttl_ms=ttl_ms)
        os.kill(owner, signal.SIGSTOP)
        time.sleep(2 * ttl_ms / 1000)
        assert not _lease(log, name).alive
        os.kill(owner, signal.SIGKILL)
        log.close()


class MachineLogContract(SharedLogContract):
    """What a log besides can tell whose processes are all on one machine."""

    @pytest.mark.crash
    def test_a_killed_owners_lease_is_dead_at_once(
        self, url: str, open_url: OpenLog, processes: SpawnContext
    ) -> None:
        log = open_url(url)
        name = new_id()
        owner = _owner(url, open_url, processes, session_id=name, ttl_ms=LONG_MS)
        assert _lease(log, name).alive
        os.kill(owner, signal.SIGKILL)
        os.waitpid(owner, 0)
        lease = _lease(log, name)
        assert (lease.alive, lease.expires_in_ms) == (False, 0)
        log.close()

    def test_a_closed_log_says_so(self, url: str, open_url: OpenLog) -> None:
        log = open_url(url)
        story = LogStory(log).given(created())
        append = story.append(said(), known_seq=1)
        log.close()
        log.close()
        for attempt in (
            lambda: log.append([append]),
            lambda: log.state(story.session_id),
            lambda: log.leases.get(story.session_id),
            lambda: log.leases.renew(story.session_id, epoch=1, writer="w", ttl_ms=1_000),
        ):
            with pytest.raises(LogUnavailableError, match="closed"):
                attempt()

    def test_a_log_that_was_forked_must_be_opened_again(
        self, url: str, open_url: OpenLog
    ) -> None:
        log = open_url(url)
        append = (story := LogStory(log).given(created())).append(said())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other threads of the test run do no harm
            child = os.fork()
        if child == 0:
            try:
                log.append([append])
            except LogUnavailableError:
                os._exit(REFUSED)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == REFUSED
        story.send([append]).then(ACCEPTED)
        log.close()


def _owner(
    url: str,
    open_url: OpenLog,
    processes: SpawnContext,
    *,
    session_id: str,
    ttl_ms: int,
) -> int:
    """The id of a process that has just taken the lease."""
    ready = processes.Barrier(2)
    owner = processes.Process(
        target=lean_on_a_lease, args=(open_url, url, session_id, ready, ttl_ms)
    )
    owner.start()
    ready.wait(ROUND_TIMEOUT_S)
    assert owner.pid is not None
    return owner.pid


def _lease(log: Log, session_id: str) -> Lease:
    lease = log.leases.get(session_id)
    assert lease is not None
    return lease
