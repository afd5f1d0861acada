"""The key of a log's placeholders: kept once, whoever needs it first.

Read by hooks too, so this loads nothing that is slow to load.
"""

import hashlib
import os
import tempfile
from pathlib import Path

from foldline.errors import RedactionError
from foldline.places import default_data_dir, make_private, own_url, path_of

KEY_BYTES = 32

KEY_NAME_CHARS = 16
"""How much of the hash of a log's URL names the file of its key."""


def key_of_log(url: str) -> bytes:
    """The key of a log's placeholders; a fresh one for memory:.

    It is kept beside a file's log, and in this user's data folder for a log elsewhere:
    there, equal secrets have equal placeholders as far as they come from one machine.

    Raises:
        RedactionError: the key cannot be read or made.
        SettingsError: a path in the home of nobody.
    """
    path = key_path(url)
    if path is None:
        return os.urandom(KEY_BYTES)
    if path_of(own_url(url)) is None:
        try:
            make_private(path.parent)
        except OSError as error:
            raise RedactionError("key", f"{path.parent}: {error.strerror}") from error
    return _kept_key(path)


def key_path(url: str) -> Path | None:
    """Where the key of a log's placeholders is kept; None for memory:.

    Raises:
        SettingsError: a path in the home of nobody.
    """
    url = own_url(url)
    database = path_of(url)
    if database is not None:
        return database.with_name(f"{database.name}.redaction-key")
    if "://" not in url:
        return None
    name = hashlib.sha256(url.encode()).hexdigest()[:KEY_NAME_CHARS]
    return default_data_dir() / f"{name}.redaction-key"


def _kept_key(path: Path) -> bytes:
    """Read the key, or make it: whole or not at all, and never over another's."""
    try:
        if not path.exists():
            _make_key(path)
        key = path.read_bytes()
    except OSError as error:
        raise RedactionError("key", f"{path}: {error.strerror}") from error
    if len(key) != KEY_BYTES:
        raise RedactionError("key", f"{path} does not hold {KEY_BYTES} bytes")
    return key


def _make_key(path: Path) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:  # mkstemp makes it for its owner only
            file.write(os.urandom(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(name, path)
        except FileExistsError:
            return  # another process was first: its key is the log's
    finally:
        Path(name).unlink()
