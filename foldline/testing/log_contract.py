"""What every log must do, as tests to inherit.

    class TestMyLog(LogContract):
        @pytest.fixture
        def make_log(self, tmp_path):
            return lambda clock=wall_clock: MyLog(tmp_path / "log", clock=clock)

`make_log` opens the log; each test closes what it opened. It may hold what other tests
recorded: sessions, leases and tenants have fresh names here. `clock` gives microseconds
since 1970 UTC; a log with a clock of its own may ignore it.
"""

from collections.abc import Iterator

import pytest

from foldline.errors import BlobError
from foldline.processors.clock import wall_clock
from foldline.processors.log import Log
from foldline.testing.approval_contract import ApprovalContract
from foldline.testing.fork_contract import ForkContract
from foldline.testing.log_story import LogStory, new_id
from foldline.testing.reading_contract import ReadingContract
from foldline.testing.samples import created
from foldline.testing.steering_contract import SteeringContract
from foldline.testing.subagent_contract import SubagentContract
from foldline.testing.tool_contract import ToolContract
from foldline.testing.verdict_contract import MakeLog, VerdictContract


class LogContract(
    VerdictContract,
    ReadingContract,
    ForkContract,
    SteeringContract,
    SubagentContract,
    ApprovalContract,
    ToolContract,
):
    """Inherit it and give a `make_log` fixture."""

    @pytest.fixture
    def make_log(self) -> MakeLog:
        """Override: a function that opens the log (keyword `clock`)."""
        raise NotImplementedError

    @pytest.fixture
    def tenant(self) -> str:
        """A tenant of nobody else; override where the log itself says whose it is."""
        return new_id()

    @pytest.fixture
    def log(self, make_log: MakeLog) -> Iterator[Log]:
        """The log, open."""
        log = make_log(clock=wall_clock)
        yield log
        log.close()

    @pytest.fixture
    def story(self, log: Log) -> LogStory:
        """A session that was just created."""
        return LogStory(log).given(created())

    def test_a_lease_lives_while_it_is_renewed(self, log: Log) -> None:
        name = new_id()
        assert log.leases.get(name) is None
        log.leases.renew(name, epoch=1, writer="a", ttl_ms=60_000)
        lease = log.leases.get(name)
        assert lease is not None
        assert (lease.epoch, lease.writer, lease.alive) == (1, "a", True)
        assert 0 < lease.expires_in_ms <= 60_000

    def test_leases_of_several_sessions_are_looked_at_at_once(self, log: Log) -> None:
        held, dead, never = (new_id() for _ in range(3))
        log.leases.renew(held, epoch=1, writer="a", ttl_ms=60_000)
        log.leases.renew(dead, epoch=1, writer="a", ttl_ms=0)
        found = log.leases.get_many([held, dead, never])
        assert {name: lease.alive for name, lease in found.items()} == {
            held: True,
            dead: False,
        }

    def test_a_lease_that_is_not_renewed_dies(self, log: Log) -> None:
        name = new_id()
        log.leases.renew(name, epoch=1, writer="a", ttl_ms=0)
        lease = log.leases.get(name)
        assert lease is not None
        assert (lease.alive, lease.expires_in_ms) == (False, 0)

    def test_a_lower_epoch_replaces_no_higher_one(self, log: Log) -> None:
        name = new_id()
        log.leases.renew(name, epoch=2, writer="b", ttl_ms=60_000)
        log.leases.renew(name, epoch=1, writer="a", ttl_ms=60_000)
        lease = log.leases.get(name)
        assert lease is not None
        assert lease.writer == "b"
        log.leases.renew(name, epoch=3, writer="a", ttl_ms=60_000)
        lease = log.leases.get(name)
        assert lease is not None
        assert (lease.writer, lease.epoch) == ("a", 3)

    def test_only_its_holder_releases_a_lease(self, log: Log) -> None:
        name = new_id()
        log.leases.renew(name, epoch=1, writer="a", ttl_ms=60_000)
        log.leases.release(name, epoch=1, writer="b")
        assert log.leases.get(name) is not None
        log.leases.release(name, epoch=1, writer="a")
        assert log.leases.get(name) is None

    def test_a_lease_is_no_part_of_the_history(self, story: LogStory) -> None:
        before = story.state
        story.log.leases.renew(story.session_id, epoch=1, writer="a", ttl_ms=1_000)
        assert story.state == before

    def test_a_blob_is_kept_by_its_hash(self, log: Log) -> None:
        data = b"x" * 100_000
        sha256 = log.blobs.put(data)
        assert log.blobs.put(data) == sha256
        assert log.blobs.get(sha256) == data
        with pytest.raises(BlobError, match="00000000"):
            log.blobs.get(bytes(32))
