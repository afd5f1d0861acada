"""What an operator can do to the topics of a log, and mostly should not."""

from typing import Any, cast

import confluent_kafka.admin

from foldline import kafka
from tests.cluster.logs import FreshLog

ANSWER_S = 10

_api = cast("Any", confluent_kafka.admin)


def set_config(log: FreshLog, topic: str, **configs: object) -> None:
    """Set configs of a topic; `max_message_bytes` is `max.message.bytes`."""
    entries = [
        _api.ConfigEntry(
            name.replace("_", "."),
            str(value),
            incremental_operation=_api.AlterConfigOpType.SET,
        )
        for name, value in configs.items()
    ]
    resource = _api.ConfigResource(
        _api.ResourceType.TOPIC, topic, incremental_configs=entries
    )
    client: Any = kafka.admin(log.cluster, log.settings)
    for future in client.incremental_alter_configs([resource]).values():
        future.result(ANSWER_S)


def add_partitions(log: FreshLog, topic: str, count: int) -> None:
    """Give a topic more partitions than the log has."""
    client: Any = kafka.admin(log.cluster, log.settings)
    more = _api.NewPartitions(topic, count)
    client.create_partitions([more])[topic].result(ANSWER_S)
