"""Faust's settings for the fleet. What it does by default and must not is said beside each.

librdkafka's settings in `FOLDLINE_KAFKA__EXTRA` are for another client: of them, what
says how to get in (SASL, TLS) is translated, the rest does not concern this one.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# Faust's types are partly unknown to others.

import ssl
from collections.abc import Mapping
from typing import Any

import faust

from foldline.kafka import Cluster
from foldline.processors.worker_slot import Slot
from foldline.settings import Settings

SESSION_TIMEOUT_S = 10.0
"""How long a member may be silent before others get its partitions."""

FETCH_AHEAD = 1_000
"""How many records wait in memory between Faust's consumer and the fold."""


def faust_settings(
    cluster: Cluster, settings: Settings, *, partitions: int, slot: Slot
) -> dict[str, Any]:
    """The settings of the application of one member."""
    return {
        "broker": ";".join(f"aiokafka://{one}" for one in cluster.bootstrap.split(",")),
        "broker_credentials": credentials_of(settings.kafka.extra),
        "broker_commit_interval": settings.fleet_commit_ms / 1_000,
        "broker_heartbeat_interval": SESSION_TIMEOUT_S / 3,
        "broker_max_poll_records": FETCH_AHEAD,
        "broker_session_timeout": SESSION_TIMEOUT_S,
        "consumer_auto_offset_reset": "earliest",
        "consumer_group_instance_id": slot.name,  # who comes back goes on at once
        "datadir": str(slot.folder),
        "processing_guarantee": "at_least_once",  # its exactly_once is not usable
        "producer_acks": -1,
        "store": "memory://",  # of tables that are not ours; there are none
        "stream_buffer_maxsize": FETCH_AHEAD,
        "table_standby_replicas": 0,
        "topic_allow_declare": False,  # what it made it might not find: we make it before
        "topic_disable_leader": True,  # it would make a topic of its own
        "topic_partitions": partitions,
        "topic_replication_factor": settings.topic_replication,
        "web_enabled": False,  # it would serve every table to anybody at port 6066
    }


def credentials_of(extra: Mapping[str, str]) -> Any:
    """How to get in, from librdkafka's settings; None for a plain connection."""
    protocol = extra.get("security.protocol", "PLAINTEXT").upper()
    if protocol == "PLAINTEXT":
        return None
    context = _tls_of(extra) if protocol.endswith("SSL") else None
    if protocol == "SSL":
        return faust.SSLCredentials(context)
    return faust.SASLCredentials(
        mechanism=extra.get("sasl.mechanism") or extra.get("sasl.mechanisms", "PLAIN"),
        username=extra.get("sasl.username"),
        password=extra.get("sasl.password"),
        ssl_context=context,
    )


def _tls_of(extra: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=extra.get("ssl.ca.location") or None)
    certificate = extra.get("ssl.certificate.location")
    if certificate:
        context.load_cert_chain(
            certificate,
            extra.get("ssl.key.location") or None,
            extra.get("ssl.key.password") or None,
        )
    return context
