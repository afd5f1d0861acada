"""promtool, Prometheus' own checker: that of the PATH, else out of Debian's package.

Like the broker's jars, the package is fetched once and kept in the user's cache.
"""

import shutil
import subprocess
from pathlib import Path

CACHE = Path.home() / ".cache" / "foldline" / "promtool"

FETCH_TIMEOUT_S = 120

MISSING = "no promtool on the PATH, and no Debian that has one (package prometheus)"


def find_promtool() -> Path | None:
    """Where it is; None where there is none to be had."""
    if (found := shutil.which("promtool")) is not None:
        return Path(found)
    program = CACHE / "usr" / "bin" / "promtool"
    if not program.exists() and shutil.which("apt-get") and shutil.which("dpkg"):
        _fetch()
    return program if program.exists() else None


def _fetch() -> None:
    """Unpack Debian's package, which is installed nowhere."""
    CACHE.mkdir(parents=True, exist_ok=True)
    _run("apt-get", "download", "prometheus")
    for package in sorted(CACHE.glob("prometheus_*.deb")):
        _run("dpkg", "--extract", str(package), str(CACHE))
        package.unlink()


def _run(*words: str) -> None:
    subprocess.run(
        words, cwd=CACHE, check=False, capture_output=True, timeout=FETCH_TIMEOUT_S
    )
