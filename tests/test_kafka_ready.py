"""What a log on Kafka lacks is said before anybody waits for an answer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from foldline import kafka_admin, kafka_meta, kafka_ready
from foldline.errors import (
    LogUnavailableError,
    NoLogMetaError,
    NoRulesError,
    NoWorkerError,
)
from foldline.kafka import Cluster, cluster_of
from foldline.kafka_ready import group_members, require_ready
from tests.cluster.logs import FreshLog, drop_log, running_worker

pytestmark = pytest.mark.kafka

FOLDLINE = Path(sys.executable).with_name("foldline")


def test_what_is_missing_is_named_in_the_order_of_a_deployment(fresh_log: FreshLog) -> None:
    settings = fresh_log.settings.model_copy(
        update={"topic_prefix": "r" + fresh_log.prefix}
    )
    cluster = cluster_of(settings)
    with pytest.raises(NoLogMetaError, match=r"foldline schemas register.*topics create"):
        require_ready(cluster, settings)
    kafka_admin.create_topics(cluster, settings, partitions=1)
    kafka_meta.found_log(cluster, settings, registry=fresh_log.registry, partitions=1)
    with pytest.raises(NoRulesError, match="foldline topics upgrade"):
        require_ready(cluster, settings)
    drop_log(
        FreshLog("", settings.topic_prefix, 1, settings, {}, Path(), fresh_log.registry)
    )
    with pytest.raises(NoWorkerError, match="start a `foldline worker`"):
        require_ready(fresh_log.cluster, fresh_log.settings, worker_wait_ms=0)
    with running_worker(fresh_log):
        require_ready(fresh_log.cluster, fresh_log.settings, worker_wait_ms=0)


def test_brokers_that_do_not_say_who_works_are_not_nobody(
    fresh_log: FreshLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_ready, "DESCRIBE_TIMEOUT_MS", 1_000)
    with pytest.raises(LogUnavailableError):
        group_members(Cluster("127.0.0.1:1"), fresh_log.settings)


def test_the_demo_says_what_to_do_in_one_line(fresh_log: FreshLog) -> None:
    more = {"FOLDLINE_TOPIC_PREFIX": "none" + fresh_log.prefix}
    done = subprocess.run(
        [str(FOLDLINE), "demo"],
        env=os.environ | fresh_log.environment | more,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("demo: no log in kafka://")
    assert done.stderr.count("\n") == 1
