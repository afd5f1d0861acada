"""`foldline trace`: the tree, one JSON object a span, and spans to a receiver."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from foldline.processors.log import Log
from foldline.schemas.events import TurnEnded
from tests.cli.conftest import Writer
from tests.otlp_receiver import Receiver, receiving

Run = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("log")


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Receiver]:
    monkeypatch.setenv("FOLDLINE_STATE_DIR", str(tmp_path / "state"))
    with receiving() as found:
        yield found


def test_a_session_is_shown_as_a_tree(run: Run) -> None:
    done = run("trace", "open")
    assert done.code == 0
    lines = [line[25:].rstrip() for line in done.out.splitlines()]
    assert lines[0].startswith("invoke_agent coder")
    assert any(line.startswith("  chat large") for line in lines)
    assert any(line.startswith("  execute_tool deploy") for line in lines)
    assert any(line.startswith("    execution deploy") for line in lines)
    assert any(line.startswith("    permission mail") for line in lines)
    assert "error=owner_lost" in done.out
    assert "in=1200  out=34" in done.out


def test_json_is_one_span_a_line(run: Run) -> None:
    spans = run("trace", "open-1", "--json").lines()
    fields = {"name", "span_id", "parent_id", "start", "end", "status", "attributes"}
    assert all(fields <= span.keys() for span in spans)
    roots = [span for span in spans if span["parent_id"] is None]
    assert [span["name"] for span in roots] == ["invoke_agent coder"]
    calls = [span for span in spans if span["name"].startswith("execute_tool ")]
    assert {span["parent_id"] for span in calls} == {roots[0]["span_id"]}
    assert len(calls) == 3
    assert all(span["end"] >= span["start"] for span in spans)
    assert "ok\x1b" not in str(spans)
    assert spans == run("trace", "open-1", "--json").lines()


def test_a_receivers_password_is_in_no_output(
    run: Run, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "no \udcff UTF-8")
    url = receiver.url.replace("://", "://user:hidden@")
    for words in (("open-1",), ("--all",), ("--all", "--json")):
        done = run("trace", *words, "--otlp", url)
        assert done.code == 0
        assert receiver.url in done.out + done.err
        assert "hidden" not in done.out + done.err


def test_a_session_is_sent_to_a_receiver(run: Run, receiver: Receiver) -> None:
    first = run("trace", "open-1", "--otlp", receiver.url, "--json")
    assert first.code == 0
    assert {span["span_id"] for span in first.lines()} == set(receiver.spans)
    assert "spans sent to" in first.err
    run("trace", "open-1", "--otlp", f"{receiver.url}/v1/traces")
    assert receiver.received == 2 * len(receiver.spans)


def test_content_goes_along_only_where_it_is_asked_for(run: Run) -> None:
    assert "production" not in run("trace", "open-1", "--json").out
    assert "production" in run("trace", "open-1", "--json", "--content").out


def test_every_session_is_sent_once(
    run: Run, receiver: Receiver, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=abc")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "agents")
    first = run("trace", "--all", "--otlp", receiver.url, "--json").json()
    assert (first["sessions"], first["spans"]) == (2, len(receiver.spans))
    assert receiver.headers[0]["api-key"] == "abc"
    resource = receiver.requests[0].resource_spans[0].resource
    assert resource.attributes[0].value.string_value == "agents"
    assert run("trace", "--all", "--otlp", receiver.url, "--json").json()["spans"] == 0
    Writer(log, "open-1").append(TurnEnded(outcome="ABORTED"), turn_id="t1")
    again = run("trace", "--all", "--otlp", receiver.url, "--json").json()
    assert again["sessions"] == 1
    assert len(receiver.spans) == first["spans"]


def test_a_receiver_that_refuses_is_said_with_its_status(
    run: Run, receiver: Receiver
) -> None:
    receiver.statuses = [401]
    done = run("trace", "open-1", "--otlp", receiver.url, "--json")
    assert (done.code, done.json()["error"]["retryable"]) == (4, False)
    assert "401" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("open-1", "--all", "--otlp", "http://x"),
        ("--all",),
        ("open-1", "--follow"),
        ("open-1", "--otlp", "localhost:4318"),
        ("open-1", "--conventions", "none"),
        ("--all", "--otlp", "http://x", "--follow", "--every-ms", "0"),
    ],
)
def test_what_makes_no_sense_is_refused(run: Run, arguments: tuple[str, ...]) -> None:
    assert run("trace", *arguments).code == 2


def test_the_other_conventions_can_be_asked_for(run: Run) -> None:
    assert run("trace", "open-1", "--conventions", "util-1.3").code == 0
    assert run("trace", "nothing").code == 3


def test_following_goes_over_an_outage_and_ends_when_told_to(
    url: str, receiver: Receiver, log: Log
) -> None:
    receiver.statuses = [503]
    following = subprocess.Popen(
        [
            *(Path(sys.executable).with_name("foldline"), "trace", "--all", "--follow"),
            *("--every-ms", "50", "--otlp", receiver.url, "--json"),
        ],
        env=os.environ | {"FOLDLINE_URL": url},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert following.stdout is not None
    assert following.stdout.readline().startswith("{")
    Writer(log, "open-1").append(TurnEnded(outcome="ABORTED"), turn_id="t1")
    assert following.stdout.readline().startswith("{")
    following.send_signal(signal.SIGTERM)
    assert following.wait(10) == 0
    following.stdout.close()
    assert receiver.received >= len(receiver.spans) > 5
