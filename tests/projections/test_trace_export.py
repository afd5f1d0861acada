"""Spans to a real OTLP receiver: the same ids again, restarts, outages, bounds."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from foldline.errors import (
    FoldlineError,
    ReadUnavailableError,
    SettingsError,
    SpansRefusedError,
    TraceExportError,
)
from foldline.processors.open_log import open_log
from foldline.processors.stored import AuditableLog
from foldline.projections.otel_genai import GENAI_0_1
from foldline.projections.otlp import BATCH_SPANS_MAX, Encoder
from foldline.projections.otlp_sender import ANSWER_BYTES_MAX, OtlpSender, headers_of
from foldline.projections.spans import Span, SpanRef
from foldline.projections.trace_export import Swept, TraceExporter
from foldline.projections.trace_positions import Position, TracePositions
from foldline.projections.trace_reading import end_reason, take_all, traces_of
from foldline.schemas.events import (
    ModelCallCompleted,
    ModelCallStarted,
    SessionCreated,
    TurnEnded,
    TurnStarted,
    Usage,
    UsageCorrected,
)
from foldline.schemas.state import SessionState
from tests.cli.conftest import Writer, call, write_open_session
from tests.otlp_receiver import Receiver, receiving
from tests.rollouts import Rollout, into_codex
from tests.transcripts import Import, Transcript, text, tool_use


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture
def log() -> Iterator[AuditableLog]:
    opened = open_log("memory:")
    yield opened
    opened.close()


def sender_to(url: str, **options: Any) -> OtlpSender:
    encoder = Encoder(GENAI_0_1, service="tests", version="1")
    return OtlpSender(url, encoder, sleep=lambda _: None, **options)


def exporter_of(log: AuditableLog, url: str, path: Path, **options: Any) -> TraceExporter:
    positions = TracePositions.open(path / "positions.db")
    sender = sender_to(url, retry_for_ms=0)
    return TraceExporter(log, sender, positions, names=GENAI_0_1, quiet_ms=0, **options)


def spans_of(log: AuditableLog, session_id: str) -> list[Span]:
    state = log.state(session_id)
    assert state is not None
    traces = traces_of(log, state)
    take_all(log, traces, session_id)
    return traces.finished(end_reason(log, state))


def ids_of(spans: list[Span]) -> set[str]:
    return {span.ref.span_id for span in spans}


def a_turn(writer: Writer, turn_id: str, *, ended: bool = True) -> None:
    """A turn with one call; it is the session's first if there is none."""
    if writer.log.state(writer.session_id) is None:
        writer.append(SessionCreated(agent="coder"))
    writer.append(TurnStarted(trigger="USER"), turn_id=turn_id)
    asked = call(0, "shell", "{}").model_copy(update={"call_id": f"{turn_id}:0"})
    writer.append(asked, turn_id=turn_id)
    if ended:
        writer.append(TurnEnded(outcome="ABORTED"), turn_id=turn_id)


# --- what goes out -------------------------------------------------------------------


def test_what_is_received_is_what_was_built_with_the_times_of_the_log(
    log: AuditableLog, receiver: Receiver
) -> None:
    write_open_session(log, "open-1")
    spans = spans_of(log, "open-1")
    assert sender_to(receiver.url).send(spans).spans == len(spans)
    assert set(receiver.spans) == ids_of(spans)
    for span in spans:
        found = receiver.spans[span.ref.span_id]
        assert found.name == span.name
        assert found.trace_id.hex() == span.ref.trace_id
        assert found.parent_span_id.hex() == span.parent_id
        assert found.start_time_unix_nano == span.start_us * 1000
        assert found.end_time_unix_nano == span.end_us * 1000
        assert {pair.key for pair in found.attributes} == set(span.attributes)
    (of_resource,) = receiver.requests[0].resource_spans
    assert of_resource.resource.attributes[0].value.string_value == "tests"
    assert of_resource.scope_spans[0].schema_url == GENAI_0_1.schema_url


def test_sending_twice_gives_the_same_bytes_and_the_same_ids(
    log: AuditableLog, receiver: Receiver
) -> None:
    write_open_session(log, "open-1")
    for _ in range(2):
        sender_to(receiver.url).send(spans_of(log, "open-1"))
    first, second = receiver.requests
    assert first.SerializeToString() == second.SerializeToString()
    assert len(receiver.spans) * 2 == receiver.received


def test_a_request_holds_no_more_spans_than_the_limit(
    log: AuditableLog, receiver: Receiver
) -> None:
    write_open_session(log, "open-1")
    one = spans_of(log, "open-1")[0]
    many = [
        replace(one, ref=SpanRef(one.ref.trace_id, f"{number + 1:016x}"))
        for number in range(BATCH_SPANS_MAX + 1)
    ]
    sender_to(receiver.url).send(many)
    sizes = [len(r.resource_spans[0].scope_spans[0].spans) for r in receiver.requests]
    assert sizes == [BATCH_SPANS_MAX, 1]


def test_of_several_requests_only_the_one_that_is_too_large_is_sent_in_parts(
    log: AuditableLog, receiver: Receiver
) -> None:
    write_open_session(log, "open-1")
    one = spans_of(log, "open-1")[0]
    many = [
        replace(one, ref=SpanRef(one.ref.trace_id, f"{number + 1:016x}"))
        for number in range(BATCH_SPANS_MAX + 4)
    ]
    receiver.statuses = [200, 413]
    assert sender_to(receiver.url).send(many).spans == len(many)
    sizes = [len(r.resource_spans[0].scope_spans[0].spans) for r in receiver.requests]
    assert sizes == [BATCH_SPANS_MAX, 2, 2]


def test_an_outage_is_waited_for_and_a_refusal_is_not(
    log: AuditableLog, receiver: Receiver
) -> None:
    write_open_session(log, "open-1")
    spans = spans_of(log, "open-1")
    receiver.statuses = [503, 429, 502]
    assert sender_to(receiver.url).send(spans).spans == len(receiver.spans)
    for status, kind in ((400, SpansRefusedError), (500, SpansRefusedError), (401, None)):
        receiver.statuses = [status]
        with pytest.raises(TraceExportError, match=str(status)) as refused:
            sender_to(receiver.url).send(spans)
        assert not refused.value.retryable
        assert type(refused.value) is (kind or TraceExportError)


def test_what_is_too_large_for_a_receiver_is_sent_in_smaller_parts(
    log: AuditableLog, receiver: Receiver
) -> None:
    write_open_session(log, "open-1")
    spans = spans_of(log, "open-1")
    receiver.statuses = [413, 413]
    assert sender_to(receiver.url).send(spans).spans == len(spans)
    assert set(receiver.spans) == ids_of(spans)
    assert len(receiver.requests) == 3
    receiver.statuses = [413]
    with pytest.raises(SpansRefusedError):
        sender_to(receiver.url).send(spans[:1])


def test_a_receiver_that_is_away_is_an_error_that_may_pass(log: AuditableLog) -> None:
    write_open_session(log, "open-1")
    with receiving() as gone:
        url = gone.url
    with pytest.raises(TraceExportError) as away:
        sender_to(url, retry_for_ms=0).send(spans_of(log, "open-1"))
    assert away.value.retryable


def test_spans_that_a_receiver_did_not_take_are_said(
    log: AuditableLog, receiver: Receiver
) -> None:
    write_open_session(log, "open-1")
    receiver.rejects = 2
    sent = sender_to(receiver.url).send(spans_of(log, "open-1"))
    assert (sent.rejected, sent.reason) == (2, "too old")


@pytest.mark.parametrize("status", [200, 503])
@pytest.mark.parametrize(
    ("headers", "answer"),
    [
        ({"content-encoding": "gzip"}, b"no gzip"),
        ({"retry-after": "9" * 5_000}, b""),
        ({}, bytes(4 * ANSWER_BYTES_MAX)),
    ],
)
def test_no_words_of_an_answer_end_a_sender(
    log: AuditableLog,
    receiver: Receiver,
    status: int,
    headers: dict[str, str],
    answer: bytes,
) -> None:
    write_open_session(log, "open-1")
    receiver.statuses, receiver.answer_headers, receiver.answer = [status], headers, answer
    spans = spans_of(log, "open-1")
    assert sender_to(receiver.url).send(spans).spans == len(receiver.spans) == len(spans)


def test_a_receiver_is_told_of_without_a_password_and_needs_a_host(
    log: AuditableLog, receiver: Receiver
) -> None:
    write_open_session(log, "open-1")
    url = receiver.url.replace("://", "://user:hidden@")
    receiver.statuses = [401]
    with pytest.raises(TraceExportError) as refused:
        sender_to(url).send(spans_of(log, "open-1"))
    assert receiver.headers[0]["authorization"].startswith("Basic ")
    assert "hidden" not in str(refused.value)
    for nowhere in ("http://", "http://:4318", "http://[::1"):
        with pytest.raises(TraceExportError) as never:
            sender_to(nowhere)
        assert not never.value.retryable


@pytest.mark.parametrize("text", ["key=%E2%82%AC", "key=a%0d%0aX-More: b", "a b=secret"])
def test_a_header_that_http_does_not_have_is_refused_without_its_value(text: str) -> None:
    with pytest.raises(SettingsError, match="printable ASCII") as refused:
        headers_of(text)
    assert text not in str(refused.value)


def test_headers_for_a_receiver_are_read_as_opentelemetry_writes_them() -> None:
    assert headers_of("api-key=a%20b, X-Team = red,nothing") == {
        "api-key": "a b",
        "x-team": "red",
    }


# --- a whole log, again and again ----------------------------------------------------


def test_an_exporter_goes_on_from_where_it_came_to_after_a_restart(
    log: AuditableLog, receiver: Receiver, tmp_path: Path
) -> None:
    writer = Writer(log, "s")
    a_turn(writer, "t1")
    assert exporter_of(log, receiver.url, tmp_path).export().sent.spans == 2
    assert exporter_of(log, receiver.url, tmp_path).export().sent.spans == 0
    a_turn(writer, "t2")
    assert exporter_of(log, receiver.url, tmp_path).export().sent.spans == 2
    assert set(receiver.spans) == ids_of(spans_of(log, "s"))
    assert receiver.received == len(receiver.spans)


def test_an_exporter_that_lost_its_position_sends_the_same_spans_again(
    log: AuditableLog, receiver: Receiver, tmp_path: Path
) -> None:
    a_turn(Writer(log, "s"), "t1")
    for folder in ("one", "two"):
        exporter_of(log, receiver.url, tmp_path / folder).export()
    assert (len(receiver.spans), receiver.received) == (2, 4)


def test_the_position_stays_where_it_was_when_the_receiver_is_away(
    log: AuditableLog, receiver: Receiver, tmp_path: Path
) -> None:
    a_turn(Writer(log, "s"), "t1")
    receiver.statuses = [503]
    exporter = exporter_of(log, receiver.url, tmp_path)
    with pytest.raises(TraceExportError):
        exporter.export()
    assert exporter.export().sent.spans == 2
    assert set(receiver.spans) == ids_of(spans_of(log, "s"))


def test_a_session_whose_spans_are_refused_is_named_and_keeps_no_other_waiting(
    log: AuditableLog, receiver: Receiver, tmp_path: Path
) -> None:
    """It is left for a while, and sent whole once the receiver takes it."""
    for name in ("a", "b"):
        a_turn(Writer(log, name), "t1")
    receiver.statuses = [400]
    exporter = exporter_of(log, receiver.url, tmp_path)
    first = exporter.export()
    assert (list(first.refused), first.sessions) == (["a"], 1)
    assert exporter.export() == Swept()
    again = exporter_of(log, receiver.url, tmp_path, left_ms=0).export()
    assert (again.refused, again.sent.spans) == ({}, 2)
    assert set(receiver.spans) == ids_of(spans_of(log, "a")) | ids_of(spans_of(log, "b"))


def test_a_log_that_is_away_is_waited_for_and_what_was_sent_before_is_told(
    log: AuditableLog,
    receiver: Receiver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The state of the second session gets no answer at first."""
    for name in ("a", "b"):
        a_turn(Writer(log, name), "t1")
    whole, away = log.state, iter([True])

    def state(session_id: str, **how: Any) -> SessionState | None:
        if session_id == "b" and next(away, False):
            raise ReadUnavailableError(log.url, "told to be away")
        return whole(session_id, **how)

    monkeypatch.setattr(log, "state", state)
    stop, told, sessions = Event(), list[tuple[int, bool]](), list[int]()

    def tell(swept: Swept, trouble: FoldlineError | None) -> None:
        told.append((swept.sessions, trouble is not None))
        if trouble is None:
            stop.set()

    exporter = exporter_of(
        log, receiver.url, tmp_path, on_session=lambda: sessions.append(1)
    )
    exporter.run(stop, every_ms=1, told=tell)
    assert told == [(1, True), (1, False)]
    assert len(sessions) == 4


def test_a_receiver_that_will_have_nothing_ends_it(
    log: AuditableLog, receiver: Receiver, tmp_path: Path
) -> None:
    a_turn(Writer(log, "s"), "t1")
    receiver.statuses = [403]
    exporter = exporter_of(log, receiver.url, tmp_path)
    with pytest.raises(TraceExportError, match="403"):
        exporter.run(Event(), every_ms=1, told=lambda _swept, _trouble: None)


def test_an_open_span_is_sent_as_it_stands_and_again_once_it_ended(
    log: AuditableLog, receiver: Receiver, tmp_path: Path
) -> None:
    """With no lease its owner is dead, and so is the turn; its call had not begun."""
    writer = Writer(log, "s")
    a_turn(writer, "t1", ended=False)
    exporter = exporter_of(log, receiver.url, tmp_path)
    exporter.export()
    codes = {span.name: span.status.code for span in receiver.spans.values()}
    assert codes == {"invoke_agent coder": 2, "execute_tool shell": 0}
    assert exporter.export().sent.spans == 0
    writer.append(TurnEnded(outcome="ABORTED"), turn_id="t1")
    assert exporter.export().sent.spans == 2
    assert {span.status.code for span in receiver.spans.values()} == {0}
    assert len(receiver.spans) == 2


def test_what_a_living_owner_runs_is_sent_when_it_is_over(
    log: AuditableLog, receiver: Receiver, tmp_path: Path
) -> None:
    writer = Writer(log, "s")
    a_turn(writer, "t1")
    log.leases.renew("s", epoch=1, writer="writer-1", ttl_ms=60_000)
    a_turn(writer, "t2", ended=False)
    exporter = exporter_of(log, receiver.url, tmp_path)
    assert exporter.export().sent.spans == 2
    assert exporter.export().sent.spans == 0
    writer.append(TurnEnded(outcome="ABORTED"), turn_id="t2")
    assert exporter.export().sent.spans == 2
    assert receiver.received == len(receiver.spans) == 4


def test_a_span_that_a_late_event_corrected_is_sent_again(
    log: AuditableLog, receiver: Receiver, tmp_path: Path
) -> None:
    writer = Writer(log, "s")
    writer.append(SessionCreated(agent="coder"))
    writer.append(TurnStarted(trigger="USER"), turn_id="t1")
    begun = ModelCallStarted(model_call_id="m1", provider="p", model="large")
    writer.append(begun, turn_id="t1")
    writer.append(ModelCallCompleted(model_call_id="m1"), turn_id="t1")
    writer.append(TurnEnded(outcome="DONE"), turn_id="t1")
    exporter = exporter_of(log, receiver.url, tmp_path)
    assert exporter.export().sent.spans == 2
    usage = Usage(input_tokens=1, output_tokens=5)
    writer.append(UsageCorrected(model_call_id="m1", usage=usage), turn_id="t1")
    assert exporter.export().sent.spans == 1
    chat = next(span for span in receiver.spans.values() if span.name == "chat large")
    told = {pair.key: pair.value.int_value for pair in chat.attributes}
    assert told["gen_ai.usage.output_tokens"] == 5


def test_a_position_file_can_be_opened_again(tmp_path: Path) -> None:
    positions = TracePositions.open(tmp_path / "deep" / "p.db")
    positions.put("s", Position(7, whole=True))
    positions.close()
    again = TracePositions.open(tmp_path / "deep" / "p.db")
    assert again.get("s") == Position(7, whole=True)
    assert again.get("other") == Position()
    again.close()


# --- forks, subagents, imports -------------------------------------------------------


def test_a_forks_first_turn_goes_back_to_the_turn_that_it_was_forked_in(
    log: AuditableLog,
) -> None:
    parent = Writer(log, "parent")
    a_turn(parent, "t1")
    a_turn(parent, "t2")
    child = Writer(log, "child")
    child.append_fork_of("parent", 6)
    child.append(TurnStarted(trigger="USER"), turn_id="t3")
    second = spans_of(log, "parent")[2]
    (turn,) = spans_of(log, "child")
    assert turn.parent_id == ""
    assert [(link.kind, link.to) for link in turn.links] == [("FORK", second.ref)]


def test_a_subagents_turns_are_below_the_call_that_it_works_on(log: AuditableLog) -> None:
    """Also those of a subagent of a subagent, all in the trace of the first turn."""
    a_turn(Writer(log, "top"), "t1", ended=False)
    for name, above in (("child", "top"), ("leaf", "child")):
        created = SessionCreated(
            agent=name,
            relation="SUBAGENT",
            parent_session_id=above,
            parent_call_id=f"{'t1' if above == 'top' else 't2'}:0",
        )
        writer = Writer(log, name)
        writer.append(created)
        if name == "child":
            a_turn(writer, "t2", ended=False)
        else:
            writer.append(TurnStarted(trigger="PARENT"), turn_id="t3")
    top, child, leaf = (spans_of(log, name) for name in ("top", "child", "leaf"))
    assert child[0].parent_id == top[1].ref.span_id
    assert leaf[0].parent_id == child[1].ref.span_id
    assert len({span.ref.trace_id for span in (*top, *child, *leaf)}) == 1


def test_parallel_calls_of_a_transcript_overlap_below_their_turn(
    log: AuditableLog, tmp_path: Path
) -> None:
    """B44, and B43: three records of one message are one call of the model."""
    script = Transcript()
    script.user("look around")
    usage = {"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 100}
    for number in range(3):
        script.assistant("m", tool_use(f"c{number}", "Bash"), usage=usage)
    for number in (2, 0, 1):
        script.result(f"c{number}")
    script.assistant("n", text("done"), usage=usage)
    Import(log, tmp_path).take(script.data)
    (session,) = log.sessions()
    spans = spans_of(log, session.session_id)
    turn = spans[0]
    calls = [span for span in spans if span.name == "execute_tool Bash"]
    assert [span.parent_id for span in calls] == [turn.ref.span_id] * 3
    assert max(s.start_us for s in calls) < min(s.end_us for s in calls)
    chats = [span for span in spans if span.name.startswith("chat ")]
    counts = [span.attributes["gen_ai.usage.input_tokens"] for span in chats]
    assert counts == [103, 103]
    assert {span.attributes["gen_ai.provider.name"] for span in chats} == {"anthropic"}


def test_a_rollouts_usage_is_that_of_its_token_counts(
    log: AuditableLog, tmp_path: Path
) -> None:
    script = Rollout()
    script.meta()
    for number in range(3):
        script.turn(number)
    into_codex(log, tmp_path).take(script.data)
    (session,) = log.sessions()
    state = log.state(session.session_id)
    spans = spans_of(log, session.session_id)
    totals = {
        name: sum(int(str(span.attributes.get(name, 0))) for span in spans)
        for name in ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens")
    }
    assert state is not None
    assert state.usage.output_tokens > 0
    assert list(totals.values()) == [state.usage.input_tokens, state.usage.output_tokens]
