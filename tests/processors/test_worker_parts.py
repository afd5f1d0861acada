"""What a worker is made of, without a broker: its slot, and what it says of itself."""

from pathlib import Path

import pytest

from foldline.errors import SlotTakenError
from foldline.processors.worker_health import Health, HealthServer
from foldline.processors.worker_slot import Slot
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
        assert ask(server.port, "/metrics") == (200, "")
        health.turned()
        health.metrics = lambda: b"foldline 1\n"
        assert ask(server.port, "/readyz")[0] == 200
        assert ask(server.port, "/healthz")[0] == 200
        assert ask(server.port, "/metrics") == (200, "foldline 1\n")
        assert ask(server.port, "/secrets")[0] == 404
    finally:
        server.close()
