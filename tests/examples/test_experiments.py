"""The experiments: each script is its own test; at full size by name only (`make soak`)."""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "examples" / "experiments"

Run = Callable[..., str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs an experiment, which must find what it should; gives what it printed."""

    def play(number: int, *arguments: object) -> str:
        script = SCRIPTS / f"{number}.py"
        monkeypatch.setattr(sys, "argv", [str(script), *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(script), run_name="__main__")
        printed = capsys.readouterr().out
        assert ended.value.code == 0, printed
        return printed

    return play


def test_a_log_of_json_lines_glues_nothing_and_names_a_bad_line(
    run: Run, tmp_path: Path
) -> None:
    assert "readable             [1, 2, 3, 5, 6]" in run(1, tmp_path)


@pytest.mark.parametrize("kind", ["memory:", "sqlite", "jsonl"])
def test_the_reducer_says_what_is_pending_and_what_is_done(
    run: Run, tmp_path: Path, kind: str
) -> None:
    url = kind if kind == "memory:" else f"{kind}:///{tmp_path}/sessions"
    assert "WAITING_APPROVAL" in run(2, url)


@pytest.mark.crash
def test_recovery_finds_out_what_happened_instead_of_trying_again(
    run: Run, tmp_path: Path
) -> None:
    assert "'call': ['UNKNOWN'], 'asked': 1" in run(3, tmp_path / "runs")


def test_a_full_replay_is_a_checkpoint_and_its_tail_on_every_log(
    run: Run, tmp_path: Path
) -> None:
    for url in ("memory:", f"sqlite:///{tmp_path}/sessions.db"):
        assert "checkpoints          20" in run(4, 2_000, url)


@pytest.mark.storm
@pytest.mark.skipif(
    "'storm' not in config.getoption('markexpr')", reason="by name only: -m storm"
)
def test_so_it_is_at_a_hundred_thousand_events(run: Run) -> None:
    assert "checkpoints          1000" in run(4)


@pytest.mark.parametrize("kind", ["memory:", "sqlite"])
@pytest.mark.parametrize(
    ("number", "found"),
    [
        pytest.param(5, "own_input_tokens     [200, 300]", id="two agents fork at 50"),
        pytest.param(6, "compacted        1 to 100", id="1 to 100 are compacted"),
    ],
)
def test_agents_fork_and_compact_and_what_was_before_stays(
    run: Run, tmp_path: Path, number: int, found: str, kind: str
) -> None:
    url = kind if kind == "memory:" else f"{kind}:///{tmp_path}/sessions.db"
    assert found in run(number, url)
