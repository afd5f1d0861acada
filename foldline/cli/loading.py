"""Code of the user's that a command is told to use: `module:attribute`."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from foldline.cli.failures import UsageError


def load_attribute(option: str, named: str) -> Any:
    """What `module:attribute` names; modules of the current folder are found too.

    Args:
        option: for the message.
        named: as in `my_agent.tools:toolbox`; the attribute may have dots.

    Raises:
        UsageError: no such module or attribute, or the module fails when imported.
    """
    module_name, _, path = named.partition(":")
    if not module_name or not path:
        raise UsageError(option, f"module:attribute, as in my_agent.tools:box; not {named}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = import_module(module_name)
    except Exception as error:  # whatever the user's module raises
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(option, f"module {module_name} is not loaded: {reason}") from error
    for name in path.split("."):
        if not hasattr(found, name):
            raise UsageError(option, f"{module_name} has no {path}")
        found = getattr(found, name)
    return found
