"""Where this user's things lie, and how a log calls itself by whichever URL.

Hooks ask too, so this loads nothing that is slow to load.
"""

import os
from pathlib import Path

from foldline.errors import SettingsError

SQLITE = "sqlite:///"
JSONL = "jsonl:"
KAFKA = "kafka://"
SERVICE = ("https://", "http://")

OWN_FILE = 0o600
OWN_FOLDER = 0o700
"""The modes of foldline's files and folders: what agents said is for the user whose log it
is; others may be let in with chmod."""

JSONL_NAME = "sessions.jsonl"
"""The file of a jsonl: URL that names a folder."""

DEFAULT_PREFIX = "foldline."
"""What the topics of a log begin with where nobody says otherwise."""

PREFIX_VARIABLE = "FOLDLINE_TOPIC_PREFIX"


def path_of(url: str) -> Path | None:
    """The file of a sqlite: or jsonl: URL, as the shell would read its path; else None.

    A jsonl: URL may name a folder: then the file is `sessions.jsonl` in it.

    Raises:
        SettingsError: the home of nobody.
    """
    if url.startswith(SQLITE):
        return _expanded(url, url.removeprefix(SQLITE))
    if not url.startswith(JSONL):
        return None
    text = url.removeprefix(JSONL)
    path = _expanded(url, text.removeprefix("///"))
    return path / JSONL_NAME if text.endswith("/") or path.is_dir() else path


def own_url(url: str) -> str:
    """How a log calls itself, by whichever URL it was named: its `url` once it is open.

    What is kept beside a log, for hooks too, is found by this one.

    Raises:
        SettingsError: a path in the home of nobody.
    """
    path = path_of(url)
    if path is not None:
        kind = SQLITE if url.startswith(SQLITE) else f"{JSONL}///"
        return f"{kind}{path.absolute()}"
    if url.startswith(SERVICE):
        return url.rstrip("/")
    if url.startswith(KAFKA):
        brokers, _, prefix = url.removeprefix(KAFKA).partition("/")
        prefix = prefix or os.environ.get(PREFIX_VARIABLE) or DEFAULT_PREFIX
        return f"{KAFKA}{brokers}/{prefix}"
    return url


def _expanded(url: str, text: str) -> Path:
    path = Path(text)
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise SettingsError("url", url, f"{path.parts[0]} is nobody's home") from error


def default_url() -> str:
    """The log of this user on this machine."""
    return f"sqlite:///{default_data_dir() / 'sessions.db'}"


def default_data_dir() -> Path:
    """Where this user's data lies, below XDG_DATA_HOME or ~/.local/share."""
    data = os.environ.get("XDG_DATA_HOME") or str(_home() / ".local" / "share")
    return Path(data) / "foldline"


def default_state_dir() -> Path:
    """Where this user's rebuildable state lies, below XDG_STATE_HOME or ~/.local/state."""
    state = os.environ.get("XDG_STATE_HOME") or str(_home() / ".local" / "state")
    return Path(state) / "foldline"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        wanted = "a folder; or set FOLDLINE_URL: this user has no home"
        raise SettingsError("HOME", "", wanted) from error


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, each for its owner only.

    (`mkdir` with `parents` gives its mode to the last one alone.)

    Raises:
        OSError: one cannot be made.
    """
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=OWN_FOLDER, exist_ok=True)
    folder.mkdir(mode=OWN_FOLDER, exist_ok=True)  # what is there and is none is refused


def sync_folder(folder: Path) -> None:
    """Make a folder's entries durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
