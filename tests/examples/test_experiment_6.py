"""Events 1 to 100 compacted: the script is the test."""

import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "experiments" / "6.py"


@pytest.mark.parametrize("kind", ["memory:", "sqlite"])
def test_events_1_to_100_are_compacted_and_stay_readable(
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = f"sqlite:///{tmp_path}/sessions.db" if kind == "sqlite" else kind
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), url])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    printed = capsys.readouterr().out
    assert ended.value.code == 0, printed
    assert "compacted        1 to 100" in printed
