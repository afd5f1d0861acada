"""What a worker is made of, without a broker: its slot, and what it says of itself."""

import threading
from pathlib import Path

import pytest

from foldline.cli.failures import STORAGE
from foldline.errors import SlotTakenError
from foldline.processors.worker_health import READY, Health, HealthServer
from foldline.processors.worker_slot import Slot
from foldline.processors.worker_watch import EXIT_CODE, TICK_MS, Watch
from foldline.settings import Settings
from tests.cluster.processes import ask


def test_workers_of_one_folder_take_the_first_free_slots(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path)
    first = Slot.take(settings, log_id="log")
    second = Slot.take(settings, log_id="log")
    assert first.name.endswith("-0")
    assert second.name.endswith("-1")
    first.release()
    again = Slot.take(settings, log_id="log")
    assert (again.name, again.folder) == (first.name, first.folder)
    for slot in (second, again):
        slot.release()


def test_workers_of_two_folders_never_share_a_name(tmp_path: Path) -> None:
    """Else two on one machine would have one transactional.id, and fence each other."""
    slots = [
        Slot.take(Settings(state_dir=tmp_path / folder), log_id="log")
        for folder in ("one", "two")
    ]
    assert len({slot.name for slot in slots}) == 2
    for slot in slots:
        slot.release()


def test_a_named_slot_is_refused_while_somebody_has_it(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path, worker_slot="left")
    slot = Slot.take(settings, log_id="log")
    with pytest.raises(SlotTakenError, match="slot left"):
        Slot.take(settings, log_id="log")
    other = Slot.take(settings, log_id="another log")
    other.release()
    slot.release()
    Slot.take(settings, log_id="log").release()


def test_health_says_what_is_waited_for_and_metrics_once_there_are_any() -> None:
    health = Health()
    server = HealthServer("127.0.0.1", 0, health=health)
    try:
        assert ask(server.port, "/readyz") == (
            503,
            '{"ready": false, "waits_for": ["starting"]}\n',
        )
        assert ask(server.port, "/metrics") == (200, (READY % 0).decode())
        health.turned()
        health.metrics = lambda: b"foldline 1\n"
        assert ask(server.port, "/readyz")[0] == 200
        assert ask(server.port, "/healthz")[0] == 200
        assert ask(server.port, "/metrics")[1] == "foldline 1\n" + (READY % 1).decode()
        assert ask(server.port, "/secrets")[0] == 404
    finally:
        server.close()


def test_a_long_turn_that_goes_on_is_as_ready_as_it_was() -> None:
    health = Health()
    health.turned("the log")
    health.goes_on()
    assert (health.alive, health.waits_for) == (True, ("the log",))


def test_a_step_that_outlasts_its_bound_ends_the_process_and_says_where_it_was() -> None:
    ended = threading.Event()
    words: list[str] = []

    def end(what: str) -> None:
        words.append(what)
        ended.set()

    watch = Watch(end=end)
    with watch.step("a short one", within_ms=60_000):
        pass
    with (
        watch.step("the batch", within_ms=60_000),
        watch.step("send_offsets", within_ms=TICK_MS),
    ):
        assert ended.wait(30)
    watch.close()
    assert len(words) == 1
    assert f"send_offsets has not ended after {TICK_MS} ms" in words[0]
    assert "test_a_step_that_outlasts_its_bound" in words[0]


def test_a_stuck_worker_ends_as_one_that_cannot_use_its_log() -> None:
    assert EXIT_CODE == STORAGE
