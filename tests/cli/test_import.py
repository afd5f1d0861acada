"""import of files and folders: what is said, what is counted, and what is not made."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.rollouts import Rollout

Run = Callable[..., Any]

SESSION = "0a1b2c3d-0000-4000-8000-00000000000"


def records(number: int) -> list[dict[str, Any]]:
    """A question, a tool call and its result, as Claude Code writes them."""
    session_id = f"{SESSION}{number}"
    common = {
        "sessionId": session_id,
        "version": "2.1.0",
        "cwd": "/home/somebody",
        "isSidechain": False,
        "userType": "external",
    }

    def record(index: int, parent: int | None, **fields: Any) -> dict[str, Any]:
        return common | {
            "uuid": f"{number}0000000-0000-4000-8000-{index:012d}",
            "parentUuid": parent and f"{number}0000000-0000-4000-8000-{parent:012d}",
            "timestamp": f"2026-01-02T03:04:0{index}.000Z",
            **fields,
        }

    use = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a\x1b[31mb"}
    return [
        record(1, None, type="user", message={"role": "user", "content": "list it"}),
        record(
            2,
            1,
            type="assistant",
            message={
                "id": "msg_1",
                "role": "assistant",
                "model": "claude-x",
                "content": [use],
                "stop_reason": "tool_use",
                "usage": {"input_tokens": 3, "output_tokens": 4},
            },
        ),
        record(3, 2, type="user", message={"role": "user", "content": [result]}),
    ]


def write(path: Path, number: int = 1, *, extra: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(record) + "\n" for record in records(number))
    path.write_text(lines + extra, encoding="utf-8")
    return path


def test_a_file_becomes_a_session_that_one_can_question(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "one.jsonl")
    done = run("import", str(file), "--json")
    assert done.code == 0, done
    report = done.json()
    assert (report["records"], report["rejected"]) == (3, [])
    assert (report["tool_calls"], report["tool_results"]) == (1, 1)
    assert report["open_tool_calls"] == 0
    assert report["events"] > 3
    session_id = report["sessions"][0]["session_id"]
    assert "list it" in (out := run("events", session_id).out)
    assert "Bash" in out
    assert "\x1b" not in out
    assert run("verify", "--json").json()["ok"] is True


def test_the_same_file_again_adds_nothing(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "one.jsonl")
    run("import", str(file))
    again = run("import", str(file), "--json")
    assert again.code == 0
    assert (again.json()["events"], again.json()["records"]) == (0, 3)


def test_a_shrunken_file_alarms_and_says_no(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "one.jsonl")
    run("import", str(file))
    file.write_text(file.read_text().splitlines(keepends=True)[0])
    done = run("import", str(file))
    assert done.code == 1
    assert "SHRUNK" in done.out


def test_a_broken_line_is_listed_and_no_failure(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "one.jsonl", extra='{"type": "us\n')
    done = run("import", str(file))
    assert done.code == 0
    assert "rejected at byte" in done.out


def test_a_folder_is_searched_to_its_depth_and_summed_up(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "in" / "a" / "one.jsonl", 1)
    write(tmp_path / "in" / "b" / "c" / "two.jsonl", 2)
    (tmp_path / "in" / "notes.txt").write_text("not looked at")
    (tmp_path / "in" / "cats.jsonl").write_text('{"cat": "Tom"}\n')
    done = run("import", str(tmp_path / "in"), "--json")
    assert done.code == 0, done
    view = done.json()
    assert (view["records"], view["sessions"], view["alarms"]) == (6, 2, 0)
    assert [Path(f["path"]).name for f in view["files"]] == ["one.jsonl", "two.jsonl"]
    assert [Path(f["path"]).name for f in view["skipped"]] == ["cats.jsonl"]
    assert len(run("sessions", "--json").lines()) == 2


def test_people_are_told_of_each_file_and_of_all(run: Run, tmp_path: Path) -> None:
    one, two = write(tmp_path / "one.jsonl", 1), write(tmp_path / "two.jsonl", 2)
    done = run("import", str(one), str(two), str(one))
    assert done.code == 0
    assert "one.jsonl" in done.out
    assert "2 files, 2 sessions" in done.out
    assert done.err == ""


def test_a_named_file_that_is_no_transcript_is_exit_code_three(
    run: Run, tmp_path: Path
) -> None:
    cats = tmp_path / "cats.jsonl"
    cats.write_text('{"cat": "Tom"}\n')
    done = run("import", str(cats))
    assert done.code == 3
    assert "cats.jsonl" in done.err
    one = write(tmp_path / "one.jsonl")
    both = run("import", str(cats), str(one), "--json")
    assert both.code == 3
    assert len(both.json()["files"]) == 1
    assert both.json()["missed"][0]["path"] == str(cats)


def test_a_file_that_is_not_there_makes_no_log(run: Run, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    done = run("import", str(tmp_path / "no.jsonl"), "--log", url)
    assert done.code == 3
    assert "no.jsonl" in done.err
    assert not (tmp_path / "new.db").exists()
    assert run("import", "--log", url).code == 2


@pytest.mark.usefixtures("log")
def test_a_secret_in_a_transcript_is_not_in_the_log(run: Run, tmp_path: Path) -> None:
    token = "ghp_" + "a1B2c3D4e5F6" * 3
    file = write(tmp_path / "one.jsonl")
    file.write_text(file.read_text().replace("list it", f"list it with {token}"))
    assert run("import", str(file)).code == 0
    for stored in tmp_path.rglob("*.db*"):
        assert not stored.is_file() or token.encode() not in stored.read_bytes()


def test_rollouts_and_run_states_are_imported_beside_transcripts(
    run: Run, tmp_path: Path
) -> None:
    write(tmp_path / "in" / "one.jsonl")
    script = Rollout()
    script.meta()
    script.turn(1)
    (tmp_path / "in" / "two.jsonl").write_bytes(script.data)
    state = {"$schemaVersion": "1.9", "original_input": "hello"}
    (tmp_path / "in" / "three.json").write_text(json.dumps(state, indent=2))
    view = run("import", str(tmp_path / "in"), "--json").json()
    systems = [report["system"] for report in view["files"]]
    assert systems == ["claude-code", "openai-agents", "codex"]
    assert (view["sessions"], view["skipped"]) == (3, [])
    assert run("verify", "--json").json()["ok"] is True


def test_a_format_can_be_forced(run: Run, tmp_path: Path) -> None:
    cats = tmp_path / "cats.jsonl"
    cats.write_text('{"cat": "Tom"}\n')
    done = run("import", str(cats), "--format", "codex", "--json")
    assert done.code == 0
    assert done.json()["foreign"] == {"untyped": 1}
    wrong = run("import", str(cats), "--format", "cats")
    assert wrong.code == 2
    assert "claude-code, codex, openai-agents" in wrong.err
