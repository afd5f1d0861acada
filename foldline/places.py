"""Where this user's things lie, unless a setting says otherwise.

Hooks ask too, so this loads nothing that is slow to load.
"""

import os
from pathlib import Path

from foldline.errors import SettingsError


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
