"""The fixture itself: a broker, new logs on it, own brokers that can be killed."""

import pytest

from foldline.kafka_admin import find_drift, group_protocol
from foldline.kafka_meta import read_meta, read_said
from tests.cluster.fixtures import MakeLog
from tests.cluster.logs import FreshLog

pytestmark = pytest.mark.kafka


def test_a_fresh_log_says_what_it_is_and_has_its_rules(fresh_log: FreshLog) -> None:
    said = read_said(fresh_log.cluster, fresh_log.settings)
    assert said.meta
    assert said.rules
    assert said.meta.partitions == said.rules.partitions == fresh_log.partitions
    assert find_drift(fresh_log.cluster, fresh_log.settings, partitions=2) == []


def test_logs_of_one_test_are_different_logs(make_fresh_log: MakeLog) -> None:
    one, two = (make_fresh_log(partitions=1) for _ in range(2))
    assert one.prefix != two.prefix
    ids = {read_meta(log.cluster, log.settings).log_id for log in (one, two)}
    assert len(ids) == 2


def test_the_broker_takes_over_as_fast_as_it_should(fresh_log: FreshLog) -> None:
    protocol = group_protocol(fresh_log.cluster, fresh_log.settings)
    assert protocol.name == "consumer"
    assert protocol.takeover_ms <= 15_000
