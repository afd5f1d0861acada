"""A person appends what a person may, is told the verdict, and makes nothing else."""

import getpass
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foldline.cli.fields import APPENDABLE, NOT_BY_HAND
from foldline.processors.log import Log
from foldline.producers.identity import fresh_id
from foldline.schemas.authority import AUTHORITY

Run = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("log")


def last_event(run: Run, session_id: str = "open-1") -> Any:
    return run("events", session_id, "--json").lines()[-1]


def test_steering_is_recorded_as_said_by_the_user_of_this_system(run: Run) -> None:
    done = run(
        "append", "open-1", "--type", "SteeringReceived", "--field", "blocks=stop it"
    )
    assert done.code == 0
    assert "ACCEPTED" in done.out
    event = last_event(run)
    assert event["actor"] == {"kind": "PERSON", "id": getpass.getuser()}
    assert event["epoch"] == 0
    assert event["event"]["blocks"][0]["body"] == "stop it"


def test_json_gives_the_verdict_with_the_seq_of_the_event(run: Run) -> None:
    arguments = ("--type", "GoalSet", "--field", "blocks=ship", "--json")
    verdict = run("append", "open", *arguments).json()
    assert verdict["kind"] == "ACCEPTED"
    assert verdict["recorded"] is True
    assert verdict["seq"] == last_event(run)["seq"]


def test_a_pending_request_is_granted_by_its_id_alone(run: Run, log: Log) -> None:
    done = run(
        "append", "open-1", "--type", "PermissionGranted", "--field", "request_id=r1"
    )
    assert done.code == 0, done
    granted = last_event(run)["event"]
    assert granted["decided_by"] == "PERSON"
    assert (granted["call_id"], granted["args_hash"]) == ("m1:2", "hash2")
    state = log.state("open-1")
    assert state is not None
    assert state.calls["m1:2"].status == "GRANTED"


def test_a_denial_carries_feedback_for_the_model(run: Run) -> None:
    fields = ("--field", "request_id=r1", "--field", "feedback=not on a Friday")
    assert run("append", "open-1", "--type", "PermissionDenied", *fields).code == 0
    assert last_event(run)["event"]["feedback"][0]["body"] == "not on a Friday"


def test_labels_are_given_as_an_object(run: Run) -> None:
    fields = ("--field", 'labels={"team": "b", "env": "prod"}')
    assert run("append", "done-1", "--type", "LabelsSet", *fields).code == 0
    assert last_event(run, "done-1")["event"]["labels"] == [
        {"key": "env", "value": "prod"},
        {"key": "team", "value": "b"},
    ]


def test_fields_come_from_a_file_too(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "feedback.json"
    file.write_text(json.dumps({"target": "a1", "score": -1, "blocks": "wrong"}))
    arguments = ("--type", "UserFeedback", "--json-file", str(file))
    assert run("append", "open-1", *arguments).code == 0
    assert last_event(run)["event"]["score"] == -1.0


def test_fields_come_from_standard_input_for_a_dash(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = [{"kind": "text", "body": "one"}, {"kind": "text", "body": "two"}]
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"blocks": blocks})))
    done = run("append", "open-1", "--type", "SteeringReceived", "--json-file", "-")
    assert done.code == 0, done
    assert [b["body"] for b in last_event(run)["event"]["blocks"]] == ["one", "two"]


def test_a_secret_is_redacted_and_the_redaction_is_counted(run: Run) -> None:
    token = "ghp_" + "a1B2c3D4e5F6" * 3
    fields = ("--field", f"blocks=use {token}")
    assert run("append", "open-1", "--type", "SteeringReceived", *fields).code == 0
    said, counted = run("events", "open-1", "--json").lines()[-2:]
    assert token not in json.dumps(said)
    assert counted["type"] == "RedactionApplied"
    assert counted["event"]["target_event_id"] == said["event_id"]


def test_a_refusal_is_told_with_its_rule_and_exit_code_one(run: Run) -> None:
    fields = ("--field", "request_id=r9")
    done = run("append", "open-1", "--type", "PermissionGranted", *fields)
    assert done.code == 1
    assert "ILLEGAL(no_pending_request)" in done.out
    assert last_event(run)["seq"] == 16


def test_an_ended_session_takes_no_goal(run: Run) -> None:
    done = run("append", "done-1", "--type", "GoalSet", "--field", "blocks=x", "--json")
    assert done.code == 1
    assert done.json()["kind"] == "CLOSED"


def test_what_was_planned_on_an_older_seq_conflicts(run: Run) -> None:
    arguments = ("--type", "GoalSet", "--field", "blocks=x", "--expected-seq", "3")
    done = run("append", "open-1", *arguments)
    assert done.code == 1
    assert "CONFLICT" in done.out


def test_the_same_event_id_again_is_a_duplicate_and_no_failure(run: Run) -> None:
    arguments = ("--type", "GoalSet", "--field", "blocks=x", "--event-id", fresh_id())
    first = run("append", "open-1", *arguments, "--json").json()
    again = run("append", "open-1", *arguments, "--json")
    assert again.code == 0
    assert (again.json()["kind"], again.json()["seq"]) == ("DUPLICATE", first["seq"])


def test_an_id_that_is_none_is_refused_by_admission(run: Run) -> None:
    arguments = ("--type", "GoalSet", "--field", "blocks=x", "--event-id", "mine")
    done = run("append", "open-1", *arguments)
    assert done.code == 1
    assert "UNDECODABLE" in done.out


@pytest.mark.parametrize("name", sorted(set(AUTHORITY) - set(APPENDABLE)))
def test_what_only_an_owner_or_foldline_may_say_no_person_appends(
    run: Run, name: str
) -> None:
    """Also in a mirrored session, where admission would take it."""
    done = run("append", "mirror-1", "--type", name, "--field", "reason=x")
    assert done.code == 2
    assert NOT_BY_HAND.get(name, "only the session's owner") in done.err


def test_no_person_appends_what_a_policy_decides(run: Run) -> None:
    fields = ("--field", "request_id=r1", "--field", "decided_by=POLICY")
    done = run("append", "open-1", "--type", "PermissionGranted", *fields)
    assert done.code == 2
    assert "PERSON" in done.err


def test_an_append_creates_neither_a_session_nor_a_log(run: Run, tmp_path: Path) -> None:
    arguments = ("--type", "GoalSet", "--field", "blocks=x")
    assert run("append", "nobody", *arguments).code == 3
    url = f"sqlite:///{tmp_path / 'other.db'}"
    assert run("append", "open-1", *arguments, "--log", url).code == 3
    assert not (tmp_path / "other.db").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--type", "GoalSat"), "did you mean GoalSet"),
        (("--type", "GoalSet"), "blocks: Field required"),
        (("--type", "GoalSet", "--field", "blocks"), "name=value"),
        (("--type", "GoalSet", "--field", "a=1"), "its fields: blocks"),
        (("--type", "UserFeedback", "--field", "score=NaN"), "NaN is no number"),
        (("--type", "UserFeedback", "--field", "score=high"), "JSON"),
        (("--type", "GoalSet", "--json-file", "/nowhere.json"), "/nowhere.json"),
    ],
)
def test_input_that_makes_no_sense_is_one_line_that_says_what_would(
    run: Run, arguments: tuple[str, ...], said: str
) -> None:
    done = run("append", "open-1", *arguments)
    assert done.code in (2, 3)
    assert said in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "null",
        '{"blocks": NaN}',
        '{"blocks": "a", "blocks": "b"}',
        "[" * 100_000,
        '{"blocks": [{"kind": "text", "body": {"key_id": "k"}}]}',
        '{"blocks": [{"kind": "image", "body": {"sha256": "x", "size": 1}}]}',
    ],
)
def test_json_that_is_no_event_is_a_usage_error(
    run: Run, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "fields.json"
    file.write_text(text)
    done = run("append", "open-1", "--type", "GoalSet", "--json-file", str(file))
    assert done.code == 2
    assert len(done.err.splitlines()) == 1


def test_a_large_text_goes_to_the_blob_store(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "fields.json"
    file.write_text(json.dumps({"blocks": "long words " * 20_000}))
    done = run("append", "open-1", "--type", "GoalSet", "--json-file", str(file))
    assert done.code == 0
    assert last_event(run)["event"]["blocks"][0]["body"]["blob"]["size"] == 220_000
    assert run("verify", "--json").json()["ok"] is True


@pytest.mark.parametrize(
    "fields",
    [
        ("UserFeedback", "target=x", "score=1e400"),
        ("ToolOutcomeUnknown", "call_id=c", "reason=r", f"attempt={'9' * 30}"),
    ],
)
def test_a_number_that_no_event_holds_is_a_usage_error(
    run: Run, fields: tuple[str, ...]
) -> None:
    options = [word for field in fields[1:] for word in ("--field", field)]
    done = run("append", "open-1", "--type", fields[0], *options)
    assert (done.code, done.out) == (2, "")
