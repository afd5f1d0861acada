"""What a broker of the tests is set to: one function for jars and containers.

A log needs nothing of a broker but what `docs/operations.md` lists; the rest makes one
broker enough (replication factors), small (fewer internal partitions), its cleaner come
often enough for a test to see it, and what a test would only wait for quick.
"""

from dataclasses import dataclass

from foldline.kafka_admin import BROKER_SETTINGS

KAFKA_VERSION = "4.4.0"

CONTAINER_DATA = "/var/lib/kafka/data"
CONTAINER_PORT = 9092
CONTAINER_CONTROLLER_PORT = 9093

QUICK = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
}
"""How soon a member of a group hears of its partitions."""


@dataclass(frozen=True, slots=True)
class Node:
    """One broker, which is a controller too: where it listens, where its data lies.

    `advertised` is the host and port that clients are told, where it is another one
    than that it listens on (a container's).
    """

    node_id: int
    host: str
    port: int
    controller_port: int
    data: str
    advertised: str = ""


def broker_settings(node: Node, nodes: list[Node]) -> dict[str, str]:
    """The properties of one broker of a cluster of `nodes`."""
    voters = ",".join(f"{n.node_id}@{n.host}:{n.controller_port}" for n in nodes)
    copies = str(min(3, len(nodes)))
    in_sync = str(max(1, min(3, len(nodes)) - 1))
    return (
        dict(BROKER_SETTINGS)
        | QUICK
        | {
            "process.roles": "broker,controller",
            "node.id": str(node.node_id),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": (
                f"PLAINTEXT://{node.host}:{node.port},"
                f"CONTROLLER://{node.host}:{node.controller_port}"
            ),
            "advertised.listeners": (
                f"PLAINTEXT://{node.advertised or f'{node.host}:{node.port}'}"
            ),
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": node.data,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": in_sync,
            "auto.create.topics.enable": "false",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.num.partitions": "4",
            "log.cleaner.backoff.ms": "1000",
        }
    )


def as_environment(properties: dict[str, str]) -> dict[str, str]:
    """Properties as the apache/kafka image takes them: `.` is `_`, `_` is `__`."""
    marks = str.maketrans({".": "_", "_": "__", "-": "___"})
    return {f"KAFKA_{k.translate(marks).upper()}": v for k, v in properties.items()}


def as_file(properties: dict[str, str]) -> str:
    """Properties as `server.properties` holds them."""
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def registry_environment(*, host: str, port: int, management_port: int) -> dict[str, str]:
    """The environment of the schema registry (Apicurio, kept in memory)."""
    return {
        "QUARKUS_HTTP_HOST": host,
        "QUARKUS_HTTP_PORT": str(port),
        "QUARKUS_MANAGEMENT_HOST": host,
        "QUARKUS_MANAGEMENT_PORT": str(management_port),
    }
