"""`foldline tokens`: who may use a read service. Only hashes are kept."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from cyclopts import App, Parameter

from foldline.cli.context import Context
from foldline.cli.failures import OK, UsageError

if TYPE_CHECKING:
    from foldline.projections.tokens import Token

DAY_S = 24 * 60 * 60

tokens = App(
    name="tokens",
    help="Give and take back the tokens of a read service.",
    help_format="plaintext",
    help_epilogue="",
    version_flags=(),
)


@tokens.command(name="add")
def add(
    token_id: str,
    /,
    *,
    tenant: str = "default",
    scope: tuple[str, ...],
    role: tuple[str, ...] = (),
    kind: str = "SERVICE",
    actor: str | None = None,
    days: int | None = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Make a token, and print it: this once, it is kept nowhere.

    It goes into FOLDLINE_TOKENS_FILE by its SHA-256; services see it within a second.

    Args:
        token_id: A name of your own for it: letters, digits and . _ -
        tenant: Whose sessions it sees, and its events belong to.
        scope: read, append, approve, own or admin; may be given several times.
        role: A role of a person's, for requests that name who may answer; several times.
        kind: PERSON, SERVICE or HARNESS: as what its events are recorded.
        actor: As whom they are recorded; the token's name where not given.
        days: After how many days it ends.
        context: Where to read and write.
    """
    from pydantic import ValidationError  # late: --help does without

    from foldline.projections.tokens import Token, changing, digest_of, new_secret

    path = _path(context)
    secret = new_secret()
    fields = {
        "token_id": token_id,
        "sha256": digest_of(secret),
        "tenant": tenant,
        "scopes": scope,
        "roles": role,
        "kind": kind,
        "actor_id": actor or token_id,
        "expires_at": None if days is None else int(time.time()) + days * DAY_S,
    }
    try:
        token = Token.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(where, first["msg"]) from error
    with changing(path) as held:
        if any(other.token_id == token_id for other in held):
            raise UsageError("TOKEN_ID", f"{token_id!r} is there already; remove it first")
        held.append(token)
    if context.out.json:
        context.out.record(_view(token) | {"token": secret})
    else:
        context.out.line((secret, "bold"))
    return OK


@tokens.command(name="list")
def list_(*, context: Annotated[Context, Parameter(parse=False)]) -> int:
    """List the tokens: never what they are, only whose."""
    from foldline.projections.tokens import load  # late: --help does without

    for token in load(_path(context)):
        if context.out.json:
            context.out.record(_view(token))
        else:
            scopes = ",".join(sorted(token.scopes))
            roles = "".join(f"  as {role}" for role in sorted(token.roles))
            line = f"  {token.tenant}  {token.kind}  {token.actor_id}  {scopes}{roles}"
            context.out.line((token.token_id, "bold"), (line, ""))
    return OK


@tokens.command(name="remove")
def remove(token_id: str, /, *, context: Annotated[Context, Parameter(parse=False)]) -> int:
    """Take a token back: services refuse it within a second.

    Args:
        token_id: Its name.
        context: Where to read and write.
    """
    from foldline.projections.tokens import changing, load  # late: --help does without

    path = _path(context)
    load(path)  # of a file that is not there nothing is made
    with changing(path) as held:
        kept = [token for token in held if token.token_id != token_id]
        if len(kept) == len(held):
            raise UsageError("TOKEN_ID", f"no token {token_id!r} in {path}")
        held[:] = kept
    return OK


def _path(context: Context) -> Path:
    named = context.settings().tokens_file
    if not named:
        raise UsageError("FOLDLINE_TOKENS_FILE", "the file that tokens are kept in")
    return Path(named).expanduser()


def _view(token: "Token") -> dict[str, object]:
    view = cast("dict[str, object]", token.model_dump(mode="json", exclude={"sha256"}))
    view["scopes"] = sorted(token.scopes)
    view["roles"] = sorted(token.roles)
    return view
