"""What a worker does while its registry is in trouble, and what goes on meanwhile."""

import json
from collections.abc import Callable

import pytest

from foldline.kafka_meta import put_in_force
from foldline.processors.admission import RULES_VERSION
from foldline.processors.kafka_log import KafkaLog
from foldline.processors.kafka_records import encode_append
from foldline.schemas.avsc import event_schema
from foldline.schemas.events import UserMessage
from foldline.schemas.registry_client import avro
from foldline.schemas.topic_records import RulesInForce
from foldline.schemas.verdicts import ACCEPTED
from foldline.testing.log_story import LogStory, make_append
from foldline.testing.samples import created, said
from foldline.topics import partition_for
from tests.cluster.fixtures import MakeLog
from tests.cluster.logs import FreshLog, running_worker, start_worker
from tests.cluster.processes import ask, free_ports, wait_until
from tests.kafka_checker import check
from tests.kafka_feed import Feed
from tests.processors.troubled_registry import Trouble, troubled

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def environment(url: str, port: int) -> dict[str, str]:
    """Of a worker that does not wait long for this registry's answers."""
    return {
        "FOLDLINE_HEALTH_PORT": str(port),
        "FOLDLINE_REGISTRY_URL": url,
        "FOLDLINE_REGISTRY_TIMEOUT_MS": "300",
    }


def fails(trouble: Trouble) -> None:
    """Every request is answered with 500."""
    trouble.status = 500


def is_slow(trouble: Trouble) -> None:
    """Every answer takes half a minute."""
    trouble.slow_s = 30


@pytest.mark.parametrize("begins", [fails, is_slow])
def test_a_registry_in_trouble_keeps_up_only_who_starts(
    make_fresh_log: MakeLog, begins: Callable[[Trouble], None]
) -> None:
    """Row 15: workers and clients that know their schemas go on; who starts says why not.

    Partitions are given from one worker to the other in it, and restored.
    """
    log = make_fresh_log(partitions=2)
    feed = Feed(log, seed=15)
    trouble = Trouble()
    ports = free_ports(2)
    with troubled(log.settings.registry_url, trouble) as url:
        client = client_of(log, url)
        with running_worker(log, name="w1", environment=environment(url, ports[0])) as one:
            story = LogStory(client).given(created(), said())
            feed.tell(20)
            feed.settle()
            begins(trouble)
            other = start_worker(log, name="w2", environment=environment(url, ports[1]))
            try:
                other.process.wait_for("does not answer", timeout_s=60)
                status, waits = ask(ports[1], "/readyz")
                assert (status, "does not answer" in waits) == (503, True)
                feed.tell(40)
                feed.settle()
                story.when(said("meanwhile")).then(ACCEPTED, seq=3)
                assert ask(ports[0], "/readyz")[0] == 200
                trouble.heal()
                other.wait_ready()
                feed.tell(40)
                feed.settle()
                assert [other.terminate(), one.terminate()] == [0, 0]
            finally:
                other.kill()
        client.close()
    check(log, feed.answers)


def client_of(log: FreshLog, registry_url: str) -> KafkaLog:
    """A client of this process that asks another registry."""
    settings = log.settings.model_copy(update={"registry_url": registry_url})
    return KafkaLog(log.cluster, settings=settings)


def test_a_schema_in_force_that_the_registry_does_not_know_yet_is_waited_for(
    make_fresh_log: MakeLog,
) -> None:
    """Row 14: a newer writer's. Asked for again and again, never refused, never guessed.

    Only the partition with such an append waits, and says for what.
    """
    log = make_fresh_log(partitions=2)
    feed = Feed(log)
    late, other = (_name_in(log, index) for index in (0, 1))
    newer = put_newer_schema_in_force(log)
    trouble = Trouble(hidden={newer})
    (port,) = free_ports(1)
    with troubled(log.settings.registry_url, trouble) as url:
        given = environment(url, port)
        with running_worker(log, environment=given) as worker:
            for name in (late, other):
                feed.append(name, created())
            feed.settle()
            before = trouble.count(f"/ids/{newer}")
            waiting = send_newer(feed, late, newer)
            behind = feed.append(late, said("behind it")).envelope.event_id
            feed.append(other, said("meanwhile"))
            feed.flush()

            def asked_again() -> bool:
                feed.take(0.1)
                return trouble.count(f"/ids/{newer}") > before + 1

            wait_until(asked_again, timeout_s=60, what=worker.said)
            assert f"the text of schema {newer} is not here yet" in ask(port, "/readyz")[1]
            assert len(feed.answers) == len(feed.sent) - 1
            assert not feed.verdicts[waiting]
            assert not feed.verdicts[behind]
            trouble.heal()
            answers = feed.settle()
            assert worker.terminate() == 0
    assert {verdict.kind for verdict in answers.values()} == {ACCEPTED}
    assert [verdict.kind for verdict in feed.verdicts[waiting]] == [ACCEPTED]
    assert len(check(log, answers, tables=[worker.state_dir]).sessions[late]) == 3


def put_newer_schema_in_force(log: FreshLog) -> int:
    """A UserMessage that has a field more than this foldline knows; gives its id."""
    schema = event_schema(UserMessage)
    schema["fields"].append({"name": "mood", "type": "string", "default": ""})
    subject = "foldline-tests-of-tomorrow-foldline.events.UserMessage"
    newer = log.registry.rest.register_schema(subject, avro(json.dumps(schema)))
    rules = RulesInForce(
        rules_version=RULES_VERSION,
        schema_ids=(*log.registry.event_ids(), newer),
        partitions=log.partitions,
    )
    put_in_force(log.cluster, log.settings, rules, registry=log.registry)
    return newer


def send_newer(feed: Feed, session_id: str, schema_id: int) -> str:
    """An append as a newer writer makes it; gives its event_id."""
    append = make_append(session_id, said("of tomorrow"), known_seq=1, epoch=0)
    value, headers = encode_append(append, schema_id=schema_id, reply_to=feed.reply_to)
    feed.put(session_id, value + b"\x08calm", headers)
    return append.envelope.event_id


def _name_in(log: FreshLog, index: int) -> str:
    """A session of one partition."""
    names = (f"s{number}" for number in range(1_000))
    return next(n for n in names if partition_for(n, log.partitions) == index)
