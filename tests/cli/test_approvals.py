"""approvals list, show, grant, deny, answer: bound to what was shown, or refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foldline.processors.log import Log
from foldline.projections.recovery import question_id
from foldline.schemas.blocks import text_of
from foldline.schemas.events import (
    InputProvided,
    InputRequested,
    KnownEvent,
    PermissionDenied,
    PermissionExpired,
    PermissionGranted,
    PermissionRequested,
    SessionCreated,
    SubagentStarted,
    ToolExecutionStarted,
    ToolOutcomeResolved,
    ToolOutcomeUnknown,
    TurnEnded,
    TurnStarted,
)
from tests.cli.conftest import Run, Writer, call, said

Made = Callable[..., Writer]


@pytest.fixture
def written(log: Log) -> Writer:
    """The session `open-1`, whose request r1 waits; its owner can write on."""
    return Writer(log, "open-1")


def last_event(log: Log, session_id: str = "open-1") -> KnownEvent:
    """What was recorded last."""
    *_, last = log.events(session_id)
    return last.event  # type: ignore[return-value]


@pytest.mark.usefixtures("log")
def test_what_waits_is_listed_with_what_a_person_needs_to_see(run: Run) -> None:
    (listed,) = run("approvals", "list", "--json").lines()
    assert (listed["request_id"], listed["session_id"]) == ("r1", "open-1")
    assert (listed["root_session_id"], listed["agent"]) == ("open-1", "coder")
    assert (listed["tool"], listed["args_hash"]) == ("mail", "hash2")
    assert listed["arguments"][0]["body"] == '{"to": "all"}'
    assert run("approvals", "show", "r", "--json").json() == listed
    shown = run("approvals", "list", "open-1").out
    for text in ("r1", "mail", "open-1", "mail everybody?", '{"to": "all"}', "hash2"):
        assert text in shown
    assert run("approvals", "list", "done-1").out == ""


def test_a_grant_is_a_persons_and_bound_to_the_arguments(run: Run, log: Log) -> None:
    refused = run("approvals", "grant", "r1", "--args-hash", "hash1")
    assert refused.code == 1
    assert "other arguments" in refused.err
    assert "r1" in {r for s in [log.state("open-1")] if s for r in s.requests}
    done = run("approvals", "grant", "r1", "--args-hash", "hash2", "--scope", "turn")
    assert done.code == 0, done.err
    event = last_event(log)
    assert isinstance(event, PermissionGranted)
    assert (event.request_id, event.args_hash, event.scope) == ("r1", "hash2", "TURN")
    assert event.decided_by == "PERSON"


@pytest.mark.parametrize("from_file", [True, False])
def test_a_grant_with_edited_arguments_carries_them(
    run: Run,
    log: Log,
    tmp_path: Path,
    from_file: bool,  # noqa: FBT001 - a parameter
) -> None:
    text = '{"to": "me"}'
    (tmp_path / "edited.json").write_text(text)
    edit = f"@{tmp_path}/edited.json" if from_file else text
    assert run("approvals", "grant", "r1", "--edit", edit).code == 0
    event = last_event(log)
    assert isinstance(event, PermissionGranted)
    assert text_of(event.edited_arguments) == text
    assert event.edited_args_hash


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(
    "options",
    [("--edit", "[1]"), ("--edit", "{"), ("--edit", "{}", "--scope", "SESSION")],
)
def test_arguments_that_cannot_be_edited_in_are_refused(
    run: Run, options: tuple[str, ...]
) -> None:
    assert run("approvals", "grant", "r1", *options).code == 2
    assert len(run("approvals", "list", "--json").lines()) == 1


def test_a_denial_tells_the_agent_why(run: Run, log: Log) -> None:
    given = ("--feedback", "-- not everybody", "--may-request-again")
    assert run("approvals", "deny", "r1", *given).code == 0
    event = last_event(log)
    assert isinstance(event, PermissionDenied)
    assert text_of(event.feedback) == "-- not everybody"
    assert event.may_request_again


def test_a_question_is_answered_and_not_granted(
    run: Run, log: Log, written: Writer
) -> None:
    written.append(InputRequested(request_id="q1", prompt=said("which branch?")))
    refused = run("approvals", "grant", "q1")
    assert refused.code == 1
    assert "foldline approvals answer q1" in refused.err
    assert run("approvals", "answer", "r1", "main").code == 1
    assert run("approvals", "answer", "q1", "main").code == 0
    event = last_event(log)
    assert isinstance(event, InputProvided)
    assert text_of(event.blocks) == "main"


def test_recoverys_question_wants_an_outcome_and_closes_the_call(
    run: Run, log: Log, written: Writer
) -> None:
    written.append(PermissionDenied(request_id="r1", call_id="m1:2", decided_by="POLICY"))
    request = call(9, "mail", "{}")
    start = ToolExecutionStarted(call_id="m1:9", operation_id="o9", effect="UNSAFE")
    unknown = ToolOutcomeUnknown(call_id="m1:9", attempt=1, reason="killed")
    asked = InputRequested(
        request_id=question_id("m1:9", 1), call_id="m1:9", prompt=said("did it happen?")
    )
    for event in (request, start, unknown, asked):
        written.append(event)
    refused = run("approvals", "answer", "recovery", "yes")
    assert refused.code == 1
    assert "COMPLETED, FAILED, NOT_EXECUTED" in refused.err
    done = run("approvals", "answer", "recovery", "completed")
    assert (done.code, "ToolOutcomeResolved" in done.out) == (0, True)
    event = last_event(log)
    assert isinstance(event, ToolOutcomeResolved)
    assert (event.call_id, event.attempt, event.outcome) == ("m1:9", 1, "COMPLETED")
    assert event.resolver.startswith("PERSON:")
    state = log.state("open-1")
    assert state is not None
    assert not state.requests
    assert "m1:9" not in state.calls


def denied_before(written: Writer) -> None:
    written.append(
        PermissionDenied(request_id="r1", call_id="m1:2", decided_by="PERSON"), owner=False
    )


def expired_before(written: Writer) -> None:
    written.append(PermissionExpired(request_id="r1"))


def ended_before(written: Writer) -> None:
    written.append(TurnEnded(outcome="ABORTED"), turn_id="t1")


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (denied_before, "it was denied already by somebody"),
        (expired_before, "the agent asks again under a new id"),
        (ended_before, "its turn has ended"),
    ],
)
@pytest.mark.parametrize("verb", ["grant", "deny"])
def test_what_is_over_is_refused_in_one_clear_line(
    run: Run, written: Writer, before: Callable[[Writer], None], words: str, verb: str
) -> None:
    before(written)
    refused = run("approvals", verb, "r1")
    assert refused.code == 1
    assert words in refused.err
    assert len(refused.err.splitlines()) == 1
    view = run("approvals", verb, "r1", "--json").json()["error"]
    assert (view["kind"], view["request_id"]) == ("AnswerRefusedError", "r1")


def test_what_expired_by_the_logs_clock_is_said_so(run: Run, written: Writer) -> None:
    denied_before(written)
    written.append(PermissionRequested(request_id="r2", expires_ms=1, display=()))
    run("sessions")  # a moment goes by
    refused = run("approvals", "grant", "r2")
    assert refused.code == 1
    assert "by the log's clock" in refused.err


@pytest.mark.usefixtures("log")
def test_a_request_that_nobody_knows_is_not_found(run: Run) -> None:
    assert run("approvals", "grant", "nothing").code == 3
    assert run("approvals", "grant", "").code == 2
    assert run("approvals", "grant", "r1", "--scope", "WORLD").code == 2
    assert run("approvals", "list", "--limit", "0").code == 2


def test_of_several_that_begin_so_none_is_answered(run: Run, written: Writer) -> None:
    written.append(InputRequested(request_id="r12", prompt=()))
    assert run("approvals", "deny", "r").code == 2
    assert run("approvals", "deny", "r1", "--session", "open-1").code == 0


def test_a_subagents_request_is_listed_below_its_root_and_answered_at_the_child(
    run: Run, log: Log, written: Writer
) -> None:
    child = Writer(log, "a-child")
    child.append(
        SessionCreated(
            agent="helper",
            relation="SUBAGENT",
            parent_session_id="open-1",
            parent_call_id="m1:0",
        )
    )
    written.append(SubagentStarted(child_session_id="a-child", call_id="m1:0"))
    child.append(TurnStarted(trigger="HARNESS"), turn_id="t")
    asked: dict[str, Any] = {"request_id": "c1", "approvers": ("security",)}
    child.append(PermissionRequested(**asked, root_session_id="open-1", display=()))
    listed = run("approvals", "list", "open-1", "--json").lines()
    assert [(p["session_id"], p["root_session_id"]) for p in listed] == [
        ("open-1", "open-1"),
        ("a-child", "open-1"),
    ]
    assert run("approvals", "list", "--json").lines() == listed
    shown = run("approvals", "list").out
    assert "below open-1" in shown
    assert "security" in shown
    done = run("approvals", "grant", "c1")
    assert done.code == 0
    assert "cannot check roles; the request is for: security" in done.err
    assert "FOLDLINE_OPERATOR_ROLES says which are yours" in done.err
    assert isinstance(last_event(log, "a-child"), PermissionGranted)
    assert [p["request_id"] for p in run("approvals", "list", "--json").lines()] == ["r1"]


@pytest.mark.parametrize(
    "answer",
    [
        ("approvals", "grant", "r2"),
        ("approvals", "deny", "r2", "--feedback", "no"),
        ("append", "open-1", "--type", "PermissionGranted", "--field", "request_id=r2"),
        ("append", "open-1", "--type", "PermissionDenied", "--field", "request_id=r2"),
    ],
)
def test_a_request_for_a_role_is_answered_by_an_operator_who_has_it(
    run: Run,
    written: Writer,
    log: Log,
    monkeypatch: pytest.MonkeyPatch,
    answer: tuple[str, ...],
) -> None:
    """However the answer is given; what names no role is anybody's."""
    asked: dict[str, Any] = {"request_id": "r2", "kind": "PLAN", "display": ()}
    written.append(PermissionRequested(**asked, approvers=("security", "boss")))
    monkeypatch.setenv("FOLDLINE_OPERATOR_ROLES", "release, dev")
    refused = run(*answer)
    assert refused.code == 1
    assert "one of the roles security, boss" in refused.err
    assert "FOLDLINE_OPERATOR_ROLES says dev, release" in refused.err
    assert isinstance(last_event(log), PermissionRequested)
    assert run("approvals", "grant", "r1").code == 0
    monkeypatch.setenv("FOLDLINE_OPERATOR_ROLES", "dev, security")
    assert run(*answer).code == 0
    assert isinstance(last_event(log), PermissionGranted | PermissionDenied)


def test_arguments_with_a_secret_are_not_edited_in(
    run: Run, log: Log, written: Writer, tmp_path: Path
) -> None:
    """Refused at the grant, however it is given; nothing of it is stored."""
    secret = "ghp_" + "a1B2c3D4e5" * 4
    before = last_event(log)
    fields = {"request_id": "r1", "grant_id": "g"}
    edited = [{"kind": "json", "body": json.dumps({"to": secret})}]
    (tmp_path / "grant.json").write_text(json.dumps(fields | {"edited_arguments": edited}))
    by_hand = ("--type", "PermissionGranted", "--json-file", str(tmp_path / "grant.json"))
    for done in (
        run("approvals", "grant", "r1", "--edit", json.dumps({"to": secret})),
        run("append", written.session_id, *by_hand),
    ):
        assert done.code == 1
        assert "the edited arguments hold a secret" in done.err
        assert secret not in done.err + done.out
    shown = '{"to": "‹secret:github-pat:7f3a91c2›"}'
    done = run("approvals", "grant", "r1", "--edit", shown)
    assert (done.code, "stands for a secret" in done.err) == (2, True)
    assert last_event(log) == before


def test_hostile_text_reaches_no_terminal(run: Run, written: Writer) -> None:
    hostile = "ok\x1b]0;owned\x07\u202eevil"
    written.append(InputRequested(request_id="q1", prompt=said(hostile)))
    shown = run("approvals", "list").out
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    listed = run("approvals", "list", "--json").lines()
    assert json.dumps(hostile)[1:-1] in json.dumps(listed)
