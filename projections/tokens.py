"""Bearer tokens: who may do what, in which tenant. Only their SHA-256 is kept.

A token is 256 bits of chance, shown once. The file is JSON:

    {"tokens": [{"token_id": "ci", "sha256": "9f86d0...", "tenant": "acme",
                 "scopes": ["read", "append"], "kind": "SERVICE", "actor_id": "ci"}]}

A person's token may have `roles` besides: a request for permission can name those of which
an answer needs one. A file without them is read as before.

It is read again when it changes, so a token is given and taken back without a restart.
"""

import fcntl
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import stat
import tempfile
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from foldline.errors import SettingsError

_logger = logging.getLogger("foldline.service")

Scope = Literal["read", "append", "approve", "own", "admin"]

SCOPES: dict[Scope, str] = {
    "read": "read sessions, events, states, contexts, blobs of the token's tenant",
    "append": "append external events: messages, steering, goals, labels; create sessions",
    "approve": "answer requests for permission and input as a person",
    "own": "own sessions: decisions, facts and claims, with an epoch; leases",
    "admin": "metrics, checkpoints and what is wrong with the store, of all tenants",
}
"""What each scope allows."""

Kind = Literal["PERSON", "SERVICE", "HARNESS"]

OPERATOR = "OPERATOR"
"""The kind of whoever uses a service without tokens: this machine's own people."""

SPEAKS_FOR: dict[str, frozenset[str]] = {
    "PERSON": frozenset({"PERSON"}),
    "SERVICE": frozenset({"SERVICE"}),
    "HARNESS": frozenset({"HARNESS", "AGENT", "POLICY"}),
    OPERATOR: frozenset({"PERSON", "SERVICE", "HARNESS", "AGENT", "POLICY"}),
}
"""As which kinds of actor a token's events may be recorded: a harness also records what
its agent and its policies decide. Any other kind that a client names is replaced."""

PREFIX = "fl_"
SECRET_BYTES = 32
TOKENS_MAX = 10_000
LOOKED_AT_EVERY_S = 1.0
UNKNOWN_LOOKED_AT_EVERY_S = 0.05
"""How often it is looked whether the file has changed; the shorter for a token that is
unknown, which may have been added a moment ago."""

FILE_MAX_BYTES = 16 * 1024 * 1024

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
NAME = re.compile(_NAME)
"""What tenants and token ids may be called: they become parts of paths."""


class Token(BaseModel):
    """What a token allows. `expires_at` is in seconds since 1970 UTC; None: never."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    token_id: Annotated[str, Field(pattern=_NAME)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    tenant: Annotated[str, Field(pattern=_NAME)]
    scopes: frozenset[Scope]
    kind: Kind
    actor_id: Annotated[str, Field(min_length=1, max_length=512)]
    expires_at: int | None = None
    roles: frozenset[Annotated[str, Field(pattern=_NAME)]] = frozenset()

    def ended(self, now_s: float) -> bool:
        """Whether its time has passed."""
        return self.expires_at is not None and now_s >= self.expires_at


class Caller(BaseModel):
    """Who calls: what routes need to know of a token."""

    model_config = ConfigDict(frozen=True)

    token_id: str
    tenant: str
    scopes: frozenset[Scope]
    kind: str
    actor_id: str
    roles: frozenset[str] = frozenset()
    sha256: str = Field(default="", repr=False)
    """Of the token; empty where none is needed."""


class Tokens(Protocol):
    """Where a service finds the tokens that it takes."""

    @property
    def needed(self) -> bool:
        """Whether a request must bear a token."""
        ...

    def find(self, secret: str | None) -> Caller | None:
        """Who bears this token; None for one that is unknown or has ended."""
        ...

    def holds(self, caller: Caller) -> bool:
        """Whether the token of who was found still counts, for just the same."""
        ...


class NoTokens:
    """Everybody who can reach the service is its operator: for one machine's own use."""

    needed = False

    def __init__(
        self,
        *,
        tenant: str = "default",
        actor_id: str = "operator",
        roles: frozenset[str] = frozenset(),
    ) -> None:
        """One bearer of every scope; without `roles` the operator has every role."""
        self._caller = Caller(
            token_id="operator",  # noqa: S106 - a name, no secret
            tenant=tenant,
            scopes=frozenset(SCOPES),
            kind=OPERATOR,
            actor_id=actor_id,
            roles=roles,
        )

    def find(self, secret: str | None) -> Caller | None:  # noqa: ARG002 - none is needed
        """The operator."""
        return self._caller

    def holds(self, caller: Caller) -> bool:
        """Whether it is the operator."""
        return caller == self._caller


class _Held(BaseModel):
    model_config = ConfigDict(extra="forbid")

    tokens: list[Token] = Field(default_factory=list[Token], max_length=TOKENS_MAX)


class TokenFile:
    """The tokens of a file, read again when it changes."""

    needed = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._looked_at = time.monotonic()
        self._stamp: tuple[int, int, int] = _stamp_of(path)
        self._tokens = _by_digest(load(path))

    def find(self, secret: str | None) -> Caller | None:
        """Who bears this token; None for one that is unknown or has ended."""
        self._look(LOOKED_AT_EVERY_S)
        if not secret:
            return None
        digest = digest_of(secret)
        if digest not in self._tokens:
            self._look(UNKNOWN_LOOKED_AT_EVERY_S)
        token = self._tokens.get(digest)
        # The second comparison takes the same time wherever the two differ.
        if token is None or not hmac.compare_digest(token.sha256, digest):
            return None
        return None if token.ended(time.time()) else caller_of(token)

    def holds(self, caller: Caller) -> bool:
        """Whether the token of who was found still counts, for just the same."""
        self._look(LOOKED_AT_EVERY_S)
        token = self._tokens.get(caller.sha256)
        if token is None or token.ended(time.time()):
            return False
        return caller_of(token) == caller

    def _look(self, every_s: float) -> None:
        """Read the file again if it is another; one that does not parse changes nothing."""
        now = time.monotonic()
        if now - self._looked_at < every_s:
            return
        with self._lock:
            self._looked_at = now
            try:
                stamp = _stamp_of(self._path)
                if stamp == self._stamp:
                    return
                tokens = _by_digest(load(self._path))
            except SettingsError as error:
                _logger.error("the tokens stay as they were: %s", error)  # noqa: TRY400 - its words say it all
                return
            self._stamp, self._tokens = stamp, tokens


def caller_of(token: Token) -> Caller:
    """Whom a token stands for."""
    return Caller(
        token_id=token.token_id,
        tenant=token.tenant,
        scopes=token.scopes,
        kind=token.kind,
        actor_id=token.actor_id,
        roles=token.roles,
        sha256=token.sha256,
    )


def digest_of(secret: str) -> str:
    """SHA-256 of a token, in hex."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def new_secret() -> str:
    """A new token: it is shown once and kept nowhere."""
    return PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def load(path: Path) -> list[Token]:
    """The tokens of a file.

    Raises:
        SettingsError: no such file, no tokens, or a file that others may write.
    """
    try:
        status = path.stat()
        text = path.read_text(encoding="utf-8")[:FILE_MAX_BYTES]
    except (OSError, ValueError) as error:
        raise _unusable(path, str(error)) from error
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _unusable(path, "others than its owner may write it: chmod go-w")
    try:
        held = _Held.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise _unusable(path, f"{where}: {first['msg']}") from error
    ids = [token.token_id for token in held.tokens]
    if len(set(ids)) != len(ids):
        raise _unusable(path, "a token_id stands there twice")
    return held.tokens


@contextmanager
def changing(path: Path) -> Generator[list[Token]]:
    """The tokens of a file, to be changed: what the list holds at the end is saved.

    One at a time: who changes the file meanwhile waits, and then reads what was saved.
    The lock is a file beside it, for the file itself is another after each change.

    Raises:
        SettingsError: as of `load`; nothing is changed then.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = path.with_name(f".{path.name}.lock")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        held = load(path) if path.exists() else []
        yield held
        save(path, held)
    finally:
        os.close(descriptor)


def save(path: Path, tokens: Iterable[Token]) -> None:
    """Write the file whole or not at all, for its owner's eyes."""
    rows = [token.model_dump(mode="json", exclude_none=True) for token in tokens]
    for row in rows:
        row["scopes"].sort()
        if row["roles"]:
            row["roles"].sort()
        else:
            del row["roles"]  # so that a foldline that knows none can read the file
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"tokens": rows}, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _by_digest(tokens: Iterable[Token]) -> dict[str, Token]:
    return {token.sha256: token for token in tokens}


def _stamp_of(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise _unusable(path, str(error)) from error
    return status.st_mtime_ns, status.st_size, status.st_ino


def _unusable(path: Path, reason: str) -> SettingsError:
    wanted = f"a file of tokens ({reason}); `foldline tokens add` makes one"
    return SettingsError("FOLDLINE_TOKENS_FILE", str(path), wanted)
