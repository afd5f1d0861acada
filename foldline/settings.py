"""Settings, from the environment: `FOLDLINE_<NAME>`; every limit has its name here.

FOLDLINE_URL        the log: memory:, sqlite:///path  (kafka:// and jsonl: come later)
FOLDLINE_BLOBS      a folder for blobs; default: beside the log
"""

import os
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from foldline.errors import SettingsError

PREFIX = "FOLDLINE_"

DAY_MS = 24 * 60 * 60 * 1000

_Wait = Annotated[int, Field(ge=0, le=DAY_MS)]
_Period = Annotated[int, Field(ge=1, le=DAY_MS)]
_Size = Annotated[int, Field(ge=1, le=2**40)]


def default_url() -> str:
    """The log of this user on this machine, below XDG_DATA_HOME or ~/.local/share."""
    data = os.environ.get("XDG_DATA_HOME") or str(_home() / ".local" / "share")
    return f"sqlite:///{Path(data) / 'foldline' / 'sessions.db'}"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        wanted = "a folder; or set FOLDLINE_URL: this user has no home"
        raise SettingsError("HOME", "", wanted) from error


class Settings(BaseSettings):
    """What an operator can set. Times are in milliseconds, sizes in bytes.

    Raises:
        SettingsError: a value that means nothing, or is out of bounds.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, frozen=True)

    url: str = Field(default_factory=default_url)
    blobs: Path | None = None
    inline_max_bytes: int = Field(default=64 * 1024, ge=0, le=900_000)
    """A body above this goes to the blob store before the append; an event must be able
    to hold one that is not."""
    blob_max_bytes: _Size = 256 * 1024 * 1024
    """The largest blob."""
    snapshot_every_events: int = Field(default=256, ge=1, le=2**31)
    """The log keeps a state every so many events of a session."""
    busy_timeout_ms: _Wait = 10_000
    """How long an append waits for another process's transaction."""
    lease_ttl_ms: _Period = 10_000
    """An owner that has not renewed its lease for so long is taken for dead."""
    lease_renew_ms: _Period = 2_500
    """How often an owner renews."""
    start_by_ms: _Wait = 5_000
    """How long after its start was recorded an effect may still begin."""
    approval_wait_ms: int = Field(default=300_000, ge=0, le=30 * DAY_MS)
    """How long a run of tools waits for a person's answer before it goes on without."""
    inflight_max: int = Field(default=32, ge=1, le=128)
    """How many appends of one session a client has under way at once; with more than the
    window remembers, the first resend of many would be TOO_OLD."""
    resend_max: int = Field(default=8, ge=0, le=1_000)
    """How often a client resends an append that got no answer."""
    batch_max: int = Field(default=500, ge=1, le=10_000)
    """How many appends one transaction of a log takes at the most."""
    import_record_max_bytes: _Size = 64 * 1024 * 1024
    """The longest line that an importer takes in; a longer one is rejected."""

    @model_validator(mode="wrap")
    @classmethod
    def _in_words(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Say which setting is wrong, as one of foldline's errors."""
        try:
            return handler(values)
        except ValidationError as error:
            first = error.errors()[0]
            name = PREFIX + "_".join(str(part) for part in first["loc"]).upper()
            raise SettingsError(name, str(first["input"]), first["msg"]) from error
