"""Fixtures that tests of every room take."""

from tests.cluster.fixtures import (
    broker,
    fresh_log,
    make_fresh_log,
    own_cluster,
    own_registry,
)

__all__ = ["broker", "fresh_log", "make_fresh_log", "own_cluster", "own_registry"]
