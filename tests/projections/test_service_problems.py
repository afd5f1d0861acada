"""What a caller is told of an error of the log: its kind, and nothing of the machine."""

import json

import pytest

from foldline.errors import (
    BlobError,
    FoldlineError,
    LogFormatError,
    LogUnavailableError,
    NoRulesError,
    ReadUnavailableError,
    RedactionError,
    RegistryUnavailableError,
    SessionIdError,
    UncertainAppendError,
)
from foldline.projections.service_problems import problem_of

BROKERS = "kafka://broker-7.internal:9092/foldline."
FOLDER = "/var/lib/foldline"
PRIVATE = ("broker-7", FOLDER)


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (UncertainAppendError(BROKERS, "not acknowledged"), 504, "uncertain"),
        (LogUnavailableError(BROKERS, "refused"), 503, "log_unavailable"),
        (ReadUnavailableError(BROKERS, f"{FOLDER} is full"), 503, "log_unavailable"),
        (RegistryUnavailableError(BROKERS, "refused"), 503, "registry_unavailable"),
        (NoRulesError(BROKERS), 503, "no_rules"),
        (BlobError("00", f"it is not in {FOLDER}/blobs"), 404, "no_blob"),
        (RedactionError("key", f"{FOLDER}: Read-only"), 500, "redaction_failed"),
        (LogFormatError(f"sqlite:///{FOLDER}/s.db", "torn"), 500, "log_failed"),
    ],
)
def test_the_services_own_troubles_are_told_by_their_kind_alone(
    error: FoldlineError, status: int, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Addresses and paths are for its operator, who has them in the service's log."""
    answer = problem_of(error).answer()
    told = json.loads(bytes(answer.body))
    assert (answer.status_code, told["kind"]) == (status, kind)
    assert not any(word in str(told) for word in PRIVATE)
    assert any(word in caplog.text for word in PRIVATE)


@pytest.mark.parametrize(
    "error",
    [
        UncertainAppendError(BROKERS, "not acknowledged"),
        RegistryUnavailableError(BROKERS, "refused"),
        NoRulesError(BROKERS),
    ],
)
def test_what_may_work_later_is_asked_again(error: FoldlineError) -> None:
    problem = problem_of(error)
    assert problem.headers["retry-after"] == "1"
    assert problem.status_code > 500


def test_what_is_wrong_with_the_request_is_told_as_it_is() -> None:
    error = SessionIdError("s", "it is taken")
    assert problem_of(error).detail == str(error)
