"""A mirror into a log on Kafka: as on one machine, over an absence of its workers."""

from pathlib import Path

import pytest

from foldline.errors import LogUnavailableError
from foldline.processors.open_log import open_log
from foldline.producers.redaction import Redactor
from foldline.producers.redaction_key import key_of_log
from foldline.settings import Settings
from tests.cluster.logs import make_log, running_worker
from tests.cluster.processes import wait_until
from tests.cluster.served import in_environment
from tests.cluster.shared import Broker
from tests.mirrors import Follower, append, imported
from tests.transcripts import SESSION, Transcript, line_of, tool_use

pytestmark = pytest.mark.kafka


def goes(follower: Follower) -> bool:
    """Whether the log answered all along; as the command does, asked again if not."""
    try:
        follower.go()
    except LogUnavailableError:
        return False
    return True


def goes_on(follower: Follower) -> None:
    wait_until(lambda: goes(follower), timeout_s=60, what=lambda: "the log answers")


def test_a_mirror_waits_for_its_log_and_goes_on_where_it_was(
    broker: Broker, tmp_path: Path
) -> None:
    """What was sent while nobody answered is answered later, and recorded once."""
    fresh = make_log(broker, tmp_path, partitions=1, verdict_timeout_ms=1_000)
    script = Transcript()
    script.user("first")
    with in_environment(fresh):
        log = open_log(fresh.url, settings=Settings())
        follower = Follower(tmp_path, log)
        follower.redactor = Redactor(key_of_log(log.url))
        follower.start()
        follower.path().write_bytes(script.data)
        with pytest.raises(LogUnavailableError):
            follower.go()
        append(follower.path(), line_of(script.assistant("m1", tool_use("c1"))))
        with running_worker(fresh):
            goes_on(follower)
            append(follower.path(), line_of(script.result("c1")))
            goes_on(follower)
            image = follower.image()
        follower.mirroring.close()
        log.close()
    assert set(image) == {SESSION}
    alone = imported(tmp_path, follower.path(), redactor=follower.redactor)
    assert image == alone
