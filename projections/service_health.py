"""Routes for whoever runs a node: alive, ready, counted, copied."""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import uuid_utils
from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, ConfigDict, Field

from foldline.processors.stored import Problem as StoredProblem
from foldline.projections.service_access import Admin
from foldline.projections.service_node import (
    Checkpoint,
    Node,
    Serving,
    Standing,
    where_it_is,
)
from foldline.projections.service_problems import Problem
from foldline.projections.views import plain

root = APIRouter(tags=["health"])
"""What stands at the root, where probes look."""

router = APIRouter(tags=["admin"])


class Health(BaseModel):
    """A node's health."""

    status: str


class Readiness(BaseModel):
    """Whether a node answers reads, and how far each of its partitions is."""

    ready: bool
    partitions: list[dict[str, Any]]


@root.get("/healthz")
async def show_health(node: Serving) -> Health:
    """Say that the process lives and answers."""
    return Health(status="stopping" if node.stopping else "ok")


@root.get("/readyz", responses={503: {"model": Readiness}}, response_model=Readiness)
async def show_readiness(node: Serving) -> JSONResponse:
    """Say whether reads are answered: 503 while those of a partition are not."""
    standings = node.standings()
    ready = not any(waits_of(node, standings))
    views = [plain(standing) for standing in standings]
    answer = Readiness(ready=ready, partitions=views)
    return JSONResponse(answer.model_dump(), 200 if ready else 503)


@root.get("/metrics", response_class=Response)
async def show_metrics(node: Serving, caller: Admin) -> Response:  # noqa: ARG001 - who may
    """Show what this node counts, for Prometheus."""
    return Response(metrics_text(node), media_type=CONTENT_TYPE_LATEST)


def metrics_text(node: Node) -> bytes:
    """What a node counts, with its gauges at what is now. Any thread may ask."""
    measure(node)
    return generate_latest(node.metrics.registry)


def waits_of(node: Node, standings: Iterable[Standing]) -> Iterator[str]:
    """What keeps a node from answering every read; nothing where it does."""
    if node.stopping:
        yield "the node is stopping"
    for standing in standings:
        if standing.stopped or not standing.caught_up:
            yield where_it_is(standing)


def measure(node: Node) -> None:
    """Set the gauges to what is now."""
    metrics = node.metrics
    metrics.streams.set(node.streams)
    metrics.under_way.labels("read").set(node.reading.under_way)
    metrics.under_way.labels("append").set(node.appending.under_way)
    metrics.warm_sessions.set(node.warm.kept_sessions)
    metrics.warm_bytes.set(node.warm.kept_bytes)
    for standing in node.standings():
        number = str(standing.partition)
        metrics.behind.labels(number).set(max(standing.end - standing.position, 0))
        metrics.read_bytes.labels(number).set(standing.read_bytes)
        metrics.skipped.labels(number).set(standing.skipped)
        metrics.caught_up.labels(number).set(int(standing.caught_up))
        metrics.stopped.labels(number).set(int(standing.stopped))


class CheckpointIn(BaseModel):
    """Where a copy is written."""

    model_config = ConfigDict(extra="forbid")

    folder: Annotated[str, Field(min_length=1, max_length=4_096)]
    """A name below the node's FOLDLINE_CHECKPOINT_DIR, or the whole path of one, that
    does not exist yet."""


class Copied(BaseModel):
    """Which partitions were copied."""

    folder: str
    partitions: list[int]


@router.post("/admin/checkpoint")
async def write_checkpoint(node: Serving, caller: Admin, given: CheckpointIn) -> Copied:  # noqa: ARG001 - who may
    """Write a copy of this node's store, from which another node can start."""
    if node.checkpoint is None:
        raise Problem(409, "no_replica", "this node serves a log that has no replica")
    folder = await node.reading.run(_place_of, node.settings.copies_dir, given.folder)
    copied = await node.reading.run(_copy, node.checkpoint, folder)
    return Copied(folder=str(folder), partitions=list(copied))


def _place_of(copies: Path, name: str) -> Path:
    """Where a copy is written: nowhere but below the folder of copies.

    Raises:
        Problem: 422.
    """
    try:
        copies = copies.expanduser().resolve()
        folder = (copies / name).resolve()  # links and `..` lead nowhere else
        if copies in folder.parents and not folder.exists():
            return folder
    except (OSError, ValueError, RuntimeError) as error:
        raise Problem(422, "bad_folder", f"{name!r} is no folder: {error}") from error
    raise Problem(422, "bad_folder", f"a path below {copies} that does not exist yet")


def _copy(checkpoint: Checkpoint, folder: Path) -> Sequence[int]:
    """Write a copy that is there whole, or not at all.

    Raises:
        Problem: 422 where another one came first, 507 where it cannot be written.
    """
    draft = folder.with_name(f".{folder.name}.{uuid_utils.uuid7()}")
    try:
        copied = checkpoint(draft)
        if folder.exists():
            raise Problem(422, "bad_folder", f"{folder} was made meanwhile")
        draft.rename(folder)
    except OSError as error:
        raise Problem(507, "no_copy", f"{folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return copied


@router.get("/admin/problems")
async def list_problems(node: Serving, caller: Admin) -> list[dict[str, Any]]:  # noqa: ARG001 - who may
    """List what is wrong with the store beneath the sessions."""

    def look() -> list[StoredProblem]:
        return list(node.log.inspect())

    return [plain(problem) for problem in await node.reading.run(look)]
