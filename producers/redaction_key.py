"""The key of a log's placeholders: kept once, whoever needs it first.

Read by hooks too, so this loads nothing that is slow to load.
"""

import hashlib
import os
import tempfile
from pathlib import Path

from foldline.errors import RedactionError
from foldline.places import default_data_dir

KEY_BYTES = 32

KEY_NAME_CHARS = 16
"""How much of the hash of a log's URL names the file of its key."""


def key_of_log(url: str) -> bytes:
    """The key of a log's placeholders; a fresh one for memory:.

    It is kept beside a file's log, and in this user's data folder for a log elsewhere:
    there, equal secrets have equal placeholders as far as they come from one machine.

    Raises:
        RedactionError: the key cannot be read or made.
    """
    scheme, _, path = url.partition(":///")
    if path and scheme != "memory":
        database = Path(path).expanduser()
        return _kept_key(database.with_name(f"{database.name}.redaction-key"))
    if "://" not in url:
        return os.urandom(KEY_BYTES)
    folder = default_data_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RedactionError("key", f"{folder}: {error.strerror}") from error
    name = hashlib.sha256(url.encode()).hexdigest()[:KEY_NAME_CHARS]
    return _kept_key(folder / f"{name}.redaction-key")


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
