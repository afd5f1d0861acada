"""A broker and a registry as containers, through testcontainers.

**This backend was not run where it was written**: no Docker engine answered there. What
it starts is compared with the jar backend in `test_cluster_backends.py`: the same
function makes the settings of both.

testcontainers' own KafkaContainer drives Confluent's image; this one drives
apache/kafka, whose start script takes every property from the environment.
"""

from typing import Any, Self, cast

from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import HttpWaitStrategy, LogMessageWaitStrategy

from tests.cluster.broker_settings import (
    CONTAINER_CONTROLLER_PORT,
    CONTAINER_DATA,
    KAFKA_VERSION,
    Node,
    as_environment,
    broker_settings,
    registry_environment,
)
from tests.cluster.jars import REGISTRY_VERSION
from tests.cluster.processes import free_ports

KAFKA_IMAGE = f"apache/kafka:{KAFKA_VERSION}"
REGISTRY_IMAGE = f"apicurio/apicurio-registry:{REGISTRY_VERSION}"
REGISTRY_PORT = 8080
REGISTRY_MANAGEMENT_PORT = 9000

STARTED = r".*Kafka Server started.*"
START_TIMEOUT_S = 120


def container_node(port: int) -> Node:
    """The one broker in a container, which listens on `port` there as on the host.

    It has one listener, for clients and for itself: what coordinates transactions goes to
    the leaders of partitions by the address that clients are told.
    """
    return Node(
        node_id=1,
        host="localhost",
        port=port,
        controller_port=CONTAINER_CONTROLLER_PORT,
        data=CONTAINER_DATA,
        advertised=f"127.0.0.1:{port}",
    )


def container_environment(port: int) -> dict[str, str]:
    """Everything that the image's start script is told."""
    node = container_node(port)
    settings = broker_settings(node, [node])
    # In a container "localhost" would not be reached from outside.
    settings["listeners"] = (
        f"PLAINTEXT://:{node.port},CONTROLLER://:{CONTAINER_CONTROLLER_PORT}"
    )
    return as_environment(settings)


def container_registry_environment() -> dict[str, str]:
    """Everything that the registry's container is told."""
    return registry_environment(
        host="0.0.0.0",  # noqa: S104 - in its container
        port=REGISTRY_PORT,
        management_port=REGISTRY_MANAGEMENT_PORT,
    )


class ApacheKafkaContainer(DockerContainer):
    """One broker of the image apache/kafka, on a port of the host that is fixed before.

    A broker tells clients where it is, so the port must be known when it starts.
    """

    def __init__(self, image: str = KAFKA_IMAGE) -> None:
        super().__init__(image)
        (self.port,) = free_ports(1)
        self.with_bind_ports(self.port, self.port)
        for name, text in container_environment(self.port).items():
            self.with_env(name, text)
        log = LogMessageWaitStrategy(STARTED).with_startup_timeout(START_TIMEOUT_S)
        self.waiting_for(log)

    @property
    def bootstrap(self) -> str:
        """Where clients begin."""
        return f"127.0.0.1:{self.port}"


class RegistryContainer(DockerContainer):
    """Apicurio, in memory."""

    def __init__(self, image: str = REGISTRY_IMAGE) -> None:
        super().__init__(image)
        self.with_exposed_ports(REGISTRY_PORT)
        for name, text in container_registry_environment().items():
            self.with_env(name, text)
        up = HttpWaitStrategy(REGISTRY_PORT, "/apis/ccompat/v7/subjects")
        self.waiting_for(up.with_startup_timeout(START_TIMEOUT_S))

    @property
    def url(self) -> str:
        """Its Confluent API."""
        host = self.get_container_host_ip()
        return f"http://{host}:{self.get_exposed_port(REGISTRY_PORT)}/apis/ccompat/v7"


class ContainerCluster:
    """Both, for one test run."""

    def __init__(self) -> None:
        self._broker = ApacheKafkaContainer()
        self._registry = RegistryContainer()
        cast("Any", self._broker).start()
        cast("Any", self._registry).start()

    @property
    def bootstrap(self) -> str:
        """Where clients begin."""
        return self._broker.bootstrap

    @property
    def registry_url(self) -> str:
        """The registry's Confluent API."""
        return self._registry.url

    def close(self) -> None:
        """End both."""
        self._broker.stop()
        self._registry.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
