"""Who calls, and whether they may: `Reader`, `Appender` and so on in a signature."""

from typing import Annotated

from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer, SecurityScopes

from foldline.projections.service_node import Serving
from foldline.projections.service_problems import Problem
from foldline.projections.tokens import Caller

_bearer = HTTPBearer(
    auto_error=False,
    description="A token of `foldline tokens add`. Its scopes and its tenant are fixed.",
)

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


async def caller(
    request: Request,
    node: Serving,
    needed: SecurityScopes,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
) -> Caller:
    """The bearer of the request's token, with every scope that the route needs.

    Raises:
        Problem: 401 without a token that counts, 403 without the scope, 429 too often.
    """
    if not node.tokens.needed:
        check_local(request)
    found = node.tokens.find(credentials.credentials if credentials else None)
    if found is None:
        said = "unknown, or its time has passed" if credentials else "missing"
        raise Problem(
            401,
            "no_token",
            f"the bearer token is {said}",
            headers={"www-authenticate": "Bearer"},
        )
    missing = [scope for scope in needed.scopes if scope not in found.scopes]
    if missing:
        detail = f"the token {found.token_id!r} lacks scope {missing[0]}"
        raise Problem(403, "no_scope", detail)
    node.charge(found, 1)
    return found


def check_local(request: Request) -> None:
    """Without tokens, refuse what a web page made a browser send.

    A page may send requests to this machine, but not without its origin, or under a
    name of its own that it points here.

    Raises:
        Problem: 403.
    """
    if request.headers.get("origin"):
        raise Problem(403, "no_token", "a page of another origin needs a token")
    insecure = bool(getattr(request.app.state, "insecure", False))
    if not insecure and request.url.hostname not in _LOOPBACK:
        detail = f"without tokens only {sorted(_LOOPBACK)} are served"
        raise Problem(403, "no_token", detail)


Reader = Annotated[Caller, Security(caller, scopes=["read"])]
Appender = Annotated[Caller, Security(caller, scopes=["append"])]
Approver = Annotated[Caller, Security(caller, scopes=["approve"])]
Owner = Annotated[Caller, Security(caller, scopes=["own"])]
Admin = Annotated[Caller, Security(caller, scopes=["admin"])]
