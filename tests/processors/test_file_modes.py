"""What agents said is readable by the user whose log it is, and by nobody else."""

import stat
from pathlib import Path

import pytest

from foldline.processors.open_log import open_log
from foldline.settings import Settings


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_a_new_log_and_its_blobs_are_readable_by_their_owner_only(
    tmp_path: Path, kind: str
) -> None:
    """Also where the umask would let everybody read; so is every folder made for it."""
    folder = tmp_path / "new"
    path = folder / "deep/er/sessions.db"
    log = open_log(f"{kind}:///{path}", settings=Settings())
    try:
        log.blobs.put(b"a secret" * 10_000)
        log.leases.renew("s", epoch=1, writer="w", ttl_ms=1_000)
        made = [folder, *folder.rglob("*")]
        assert len(made) > 6
        for path in made:
            mode = stat.S_IMODE(path.stat().st_mode)
            assert mode == (0o700 if path.is_dir() else 0o600), path
    finally:
        log.close()
