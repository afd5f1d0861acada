"""Settings, from the environment: `FOLDLINE_<NAME>`; every limit has its name here.

FOLDLINE_URL        the log: memory:, sqlite:///path  (kafka:// and jsonl: come later)
FOLDLINE_BLOBS      a folder for blobs; default: beside the log
"""

import os
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


def default_url() -> str:
    """The log of this user on this machine, below XDG_DATA_HOME or ~/.local/share."""
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return f"sqlite:///{Path(data) / 'foldline' / 'sessions.db'}"


class Settings(BaseSettings):
    """What an operator can set. Times are in milliseconds, sizes in bytes."""

    model_config = SettingsConfigDict(env_prefix="FOLDLINE_", frozen=True)

    url: str = Field(default_factory=default_url)
    blobs: Path | None = None
    inline_max_bytes: int = 64 * 1024
    """A body above this goes to the blob store before the append."""
    blob_max_bytes: int = 256 * 1024 * 1024
    """The largest blob."""
    snapshot_every_events: int = 256
    """The log keeps a state every so many events of a session."""
    busy_timeout_ms: int = 10_000
    """How long an append waits for another process's transaction."""
    lease_ttl_ms: int = 10_000
    """An owner that has not renewed its lease for so long is taken for dead."""
    lease_renew_ms: int = 2_500
    """How often an owner renews."""
    start_by_ms: int = 5_000
    """How long after its start was recorded an effect may still begin."""
    approval_wait_ms: int = 300_000
    """How long a run of tools waits for a person's answer before it goes on without."""
    inflight_max: int = 32
    """How many appends of one session a client has under way at once."""
    resend_max: int = 8
    """How often a client resends an append that got no answer."""
    batch_max: int = 500
    """How many appends one transaction of a log takes at the most."""
    import_record_max_bytes: int = 64 * 1024 * 1024
    """The longest line that an importer takes in; a longer one is rejected."""
