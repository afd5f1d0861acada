"""The read service: an application over a log, for people, other languages and clients.

    create_app(node)      the application: its routes, under /foldline/v1
    service_server        runs it, and ends its streams when it is to stop

It adds nothing to the log: what it answers is what the log's own methods say, to whoever
the bearer token says is asking.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.types import ASGIApp

from foldline.processors.http_wire import API
from foldline.projections import (
    service_appends,
    service_approvals,
    service_blobs,
    service_cancelling,
    service_contexts,
    service_events,
    service_forks,
    service_health,
    service_inbox,
    service_leases,
    service_recovery,
    service_sessions,
    service_steering,
    service_stream,
)
from foldline.projections.service_guard import Guard
from foldline.projections.service_node import Node
from foldline.projections.service_problems import ProblemView, handle_problems

_DESCRIPTION = """\
Sessions of AI agents as ordered, durable events, folded into state.

A session id in a path stands as it is, if it is made of letters, digits and `._:-`;
any other is `~` and the base64url of its UTF-8. Problems are RFC 9457, with a `kind`
that never changes its meaning; a retryable one says when in `Retry-After`.
"""

_PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ProblemView, "description": "It will not be answered, as it is."},
    "5XX": {"model": ProblemView, "description": "It is not answered now."},
}

PARTS = (
    service_sessions,
    service_stream,
    service_events,
    service_contexts,
    service_forks,
    service_appends,
    service_inbox,
    service_approvals,
    service_steering,
    service_cancelling,
    service_recovery,
    service_leases,
    service_blobs,
    service_health,
)
"""The modules whose routes stand below API, no two of them at one place."""


def create_app(node: Node, *, insecure: bool = False) -> ASGIApp:
    """The application that serves a node.

    Args:
        node: the log and whatever limits it.
        insecure: without tokens, serve under any host name.
    """
    return Guard(
        fastapi_of(node, insecure=insecure), settings=node.settings, metrics=node.metrics
    )


def fastapi_of(node: Node, *, insecure: bool = False) -> FastAPI:
    """The same without the guard: what describes itself."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        yield
        node.close()

    app = FastAPI(
        title="foldline",
        version=version("foldline"),
        description=_DESCRIPTION,
        openapi_url=f"{API}/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        responses=_PROBLEMS,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.node = node
    app.state.insecure = insecure
    handle_problems(app)
    app.include_router(service_health.root)
    api = APIRouter(prefix=API)
    for part in PARTS:
        api.include_router(part.router)
    app.include_router(api)
    return app
