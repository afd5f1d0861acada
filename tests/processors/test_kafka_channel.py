"""The producers of a client: a partition always has the same one, and few are made."""

import threading
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from foldline import kafka
from foldline.processors.kafka_channel import CHANNELS_MAX, Channels
from foldline.settings import Settings

NOBODY = kafka.Cluster("127.0.0.1:1", "none.")


@pytest.fixture
def channels(tmp_path: Path) -> Generator[Channels]:
    """Channels to a broker that is not there: nothing is sent."""
    settings = Settings(state_dir=tmp_path)
    made = Channels(lambda hear: kafka.client_producer(NOBODY, settings, on_error=hear))
    with closing(made):
        yield made


def test_each_partition_has_one_channel_and_no_more_are_made_than_needed(
    channels: Channels,
) -> None:
    assert channels.threads == []
    first = channels.of(7)
    assert channels.threads == [first.thread]
    assert channels.of(7) is first
    assert channels.of(7 + CHANNELS_MAX) is first
    assert channels.of(8) is not first
    for partition in range(1_000):
        channels.of(partition)
    assert len(channels.threads) == CHANNELS_MAX


def test_one_thread_looks_at_the_clock_for_all_and_closing_ends_every_one(
    channels: Channels,
) -> None:
    ticks: list[threading.Thread] = []
    enough = threading.Event()

    def tick() -> None:
        ticks.append(threading.current_thread())
        if len(ticks) > CHANNELS_MAX:
            enough.set()

    channels.call_on_tick(tick)
    first = channels.of(0)
    threads = [channels.of(partition).thread for partition in range(CHANNELS_MAX)]
    assert enough.wait(10)
    channels.close()
    assert set(ticks) == {first.thread}
    assert not any(thread.is_alive() for thread in threads)
