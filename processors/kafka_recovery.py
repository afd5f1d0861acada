"""What recovery did, as records of the topic `recovery`."""

import time
from collections.abc import Sequence

from foldline.processors.kafka_channel import Channel, Receipt
from foldline.processors.kafka_records import Outgoing
from foldline.schemas.record_codec import frame_record
from foldline.schemas.topic_records import RecoveryAction
from foldline.topics import partition_for

ACKNOWLEDGED_WITHIN_S = 10.0
"""How long the brokers have for all records of one call."""


class RecoveryFeed:
    """Writes to one log's `recovery`."""

    def __init__(self, *, url: str, topic: str, partitions: int, channel: Channel) -> None:
        self._url = url
        self._topic = topic
        self._partitions = partitions
        self._channel = channel

    def write(self, actions: Sequence[RecoveryAction], *, schema_id: int) -> None:
        """Publish, and wait until all of it is acknowledged.

        Raises:
            LogUnavailableError: not all of it is.
        """
        receipts = [self._post(action, schema_id) for action in actions]
        until_s = time.monotonic() + ACKNOWLEDGED_WITHIN_S
        for receipt in receipts:
            left_s = max(until_s - time.monotonic(), 0)
            self._channel.wait_for(receipt, self._url, self._topic, left_s)

    def _post(self, action: RecoveryAction, schema_id: int) -> Receipt:
        receipt = Receipt()
        partition = partition_for(action.session_id, self._partitions)
        key = action.session_id.encode()
        record = Outgoing(partition, key, frame_record(schema_id, action))
        self._channel.post(self._url, self._topic, record, receipt)
        return receipt
