"""Every error that foldline raises.

FoldlineError
├── AppendRefusedError        admission answered something else than ACCEPTED or DUPLICATE
│   ├── ConflictError         somebody appended in between: read again, decide again
│   └── FencedError           another owner has taken the session over: stop
├── SessionNotFoundError      no such session in this log
├── SessionExistsError        a session of this id is there already
├── MirroredSessionError      a session that mirrors another harness has no owner
├── LiveOwnerError            take() found an owner whose lease is alive
├── StartTooLateError         an effect was not begun: its start_by had passed
├── LogError
│   ├── LogUnavailableError   disk full, locked, no answer: this append is not recorded
│   ├── LogFormatError        the file is torn, foreign or corrupt
│   └── NewerFormatError      written by a newer foldline: upgrade, nothing was changed
├── DecodeError               bytes that are no event of a known schema
├── EncodeError               an event that no Avro bytes can hold
├── SchemaError               a schema that may not be published
├── RedactionError            the redactor failed: nothing was recorded
├── BlobError                 a blob is missing, or its bytes do not match its hash
├── ImportSourceError         a file that no importer understands
└── SettingsError             a setting or an URL that means nothing

Expected outcomes are values (a `Verdict`, a plan); these are for what the caller
cannot have meant. Each one says in `retryable` whether the same call may work later.
"""

from typing import Protocol


class VerdictLike(Protocol):
    """What an error needs of a verdict (`foldline.schemas.verdicts.Verdict`)."""

    @property
    def kind(self) -> str:
        """ACCEPTED, DUPLICATE, CONFLICT, FENCED and so on."""
        ...

    @property
    def rule(self) -> str:
        """The rule that refused, for ILLEGAL and LIMIT."""
        ...

    @property
    def current_seq(self) -> int:
        """The session's last seq when it was refused."""
        ...

    @property
    def epoch(self) -> int:
        """The session's epoch when it was refused."""
        ...

    @property
    def detail(self) -> str:
        """A sentence for a person."""
        ...


class FoldlineError(Exception):
    """The root of every error raised by foldline."""

    retryable: bool = False


class AppendRefusedError(FoldlineError):
    """Raised when admission refused an append; `verdict` says why.

    Not retryable as it is: the same append gets the same answer.
    """

    def __init__(self, event_type: str, session_id: str, verdict: VerdictLike) -> None:
        self.event_type = event_type
        self.session_id = session_id
        self.verdict = verdict
        rule = f"({verdict.rule})" if verdict.rule else ""
        detail = f": {verdict.detail}" if verdict.detail else ""
        super().__init__(
            f"{event_type} was refused in session {session_id}: "
            f"{verdict.kind}{rule}{detail} "
            f"[seq {verdict.current_seq}, epoch {verdict.epoch}]"
        )


class ConflictError(AppendRefusedError):
    """Raised when `expected_seq` is not the current seq: read again, decide again."""


class FencedError(AppendRefusedError):
    """Raised when another owner has the session: this process must stop deciding."""


class SessionNotFoundError(FoldlineError):
    """Raised when the log holds no session of this id."""

    def __init__(self, session_id: str, url: str) -> None:
        self.session_id = session_id
        self.url = url
        super().__init__(
            f"no session {session_id!r} in {url}; `foldline sessions` lists them"
        )


class SessionExistsError(FoldlineError):
    """Raised when a session is created under an id that is taken."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"session {session_id!r} exists; open() or take() it")


class MirroredSessionError(FoldlineError):
    """Raised when somebody wants to own a session that mirrors another harness."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(
            f"session {session_id!r} mirrors another harness: it has no owner; "
            "open() it to read it"
        )


class LiveOwnerError(FoldlineError):
    """Raised when `take` finds an owner whose lease is alive. Retry after it ends.

    Operator action: stop the owner, wait for its lease, or take with `steal=True`,
    which fences it.
    """

    retryable = True

    def __init__(self, session_id: str, owner: str, expires_in_ms: int) -> None:
        self.session_id = session_id
        self.owner = owner
        self.expires_in_ms = expires_in_ms
        super().__init__(
            f"session {session_id!r} is owned by live writer {owner}; its lease "
            f"expires in {expires_in_ms} ms unless renewed; take(..., steal=True) fences it"
        )


class StartTooLateError(FoldlineError):
    """Raised when an effect was not begun because its `start_by` had passed.

    The tool did not run. Another owner may have taken over in the meantime.
    """

    def __init__(self, call_id: str, late_ms: int) -> None:
        self.call_id = call_id
        self.late_ms = late_ms
        super().__init__(
            f"the effect of call {call_id} was not begun: {late_ms} ms after its start_by"
        )


class LogError(FoldlineError):
    """The log could not do what it was asked; the reason is in the message."""


class LogUnavailableError(LogError):
    """Raised when an append or a read got no answer. The append is not recorded.

    Of more appends than one transaction takes, the first `recorded` ones may be
    recorded, without their answers: a resend is told so.

    Operator action: free disk space, or end the process that holds the lock; then
    the same append, with the same event_id, may be made again.
    """

    retryable = True

    def __init__(self, url: str, reason: str, *, recorded: int = 0) -> None:
        self.url = url
        self.reason = reason
        self.recorded = recorded
        but = f" but the first {recorded} appends" if recorded else ""
        super().__init__(f"{url} did not take it: {reason}; nothing{but} was recorded")


class LogFormatError(LogError):
    """Raised when a log is torn, foreign or corrupt. Nothing was changed.

    Operator action: restore the file from a copy; `foldline verify` says how far
    its sessions are good.
    """

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(f"{url} is not a usable foldline log: {reason}")


class NewerFormatError(LogError):
    """Raised when something was written by a newer foldline. Nothing was changed.

    Operator action: upgrade foldline on this machine.
    """

    def __init__(self, what: str, found: int, known: int) -> None:
        self.what = what
        self.found = found
        self.known = known
        super().__init__(
            f"{what} has version {found}, this foldline knows up to {known}: upgrade it"
        )


class DecodeError(FoldlineError):
    """Raised when bytes are no event of a known schema, or beyond a limit."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"undecodable: {reason}")


class EncodeError(FoldlineError):
    """Raised when an event cannot be written as Avro (a number beyond 64 bits, say)."""

    def __init__(self, event_type: str, reason: str) -> None:
        self.event_type = event_type
        self.reason = reason
        super().__init__(f"{event_type} cannot be written: {reason}")


class SchemaError(FoldlineError):
    """Raised when a schema may not be published: it names field and reason."""

    def __init__(self, name: str, problems: list[str]) -> None:
        self.name = name
        self.problems = problems
        super().__init__(f"{name}: " + "; ".join(problems))


class RedactionError(FoldlineError):
    """Raised when redaction failed. It fails closed: nothing was recorded."""

    def __init__(self, rule: str, reason: str) -> None:
        self.rule = rule
        self.reason = reason
        super().__init__(f"redaction rule {rule} failed ({reason}); nothing was recorded")


class BlobError(FoldlineError):
    """Raised when a blob is missing, or its bytes do not match its hash."""

    def __init__(self, sha256: str, reason: str) -> None:
        self.sha256 = sha256
        self.reason = reason
        super().__init__(f"blob {sha256}: {reason}")


class ImportSourceError(FoldlineError):
    """Raised when a file is of no format that an importer understands."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class SettingsError(FoldlineError):
    """Raised when a setting or an URL means nothing; the message says what would."""

    def __init__(self, name: str, value: str, wanted: str) -> None:
        self.name = name
        self.value = value
        self.wanted = wanted
        super().__init__(f"{name}={value!r}: {wanted}")
