"""How a command fails: exit codes in one table, one line on stderr, and what to do.

`foldline --help` prints the table. With `--json` the same goes to stdout as
`{"error": {"kind", "message", "exit_code", "retryable", ...}}`.
"""

from foldline.errors import (
    AnswerRefusedError,
    AppendRefusedError,
    BlobError,
    DecodeError,
    EncodeError,
    ExportLossError,
    ExportRefusedError,
    FoldlineError,
    ForkPointError,
    ImportSourceError,
    LineageError,
    LiveOwnerError,
    LogError,
    NoLogMetaError,
    NoRecordError,
    NotAPersonError,
    RedactionError,
    ReplayError,
    SchemaError,
    SessionExistsError,
    SessionIdError,
    SessionNotFoundError,
    SettingsError,
    TraceExportError,
)

OK = 0
NO = 1
USAGE = 2
NOT_FOUND = 3
STORAGE = 4
INTERNAL = 5
INTERRUPTED = 130
HUNG_UP = 129
BROKEN_PIPE = 141
TERMINATED = 143

EXIT_CODES: dict[int, str] = {
    OK: "done; the answer is yes",
    NO: "done; the answer is no: not verified, refused, alarmed, not ended yet",
    USAGE: "the command line, its input or a setting makes no sense",
    NOT_FOUND: "no such log, session, event type or file, or several fit",
    STORAGE: "the log (or the output) cannot be used: torn, newer, full, locked",
    INTERNAL: "a defect of foldline; FOLDLINE_DEBUG=1 shows where",
    HUNG_UP: "ended by SIGHUP; nothing half written is left",
    INTERRUPTED: "interrupted by Ctrl-C",
    BROKEN_PIPE: "whoever read the output went away",
    TERMINATED: "ended by SIGTERM; nothing half written is left",
}
"""Every exit code with its meaning; it never changes what it means."""


class UsageError(FoldlineError):
    """Raised when an argument or an input of the command makes no sense."""

    def __init__(self, what: str, wanted: str) -> None:
        self.what = what
        self.wanted = wanted
        super().__init__(f"{what}: {wanted}")


class NoLogError(FoldlineError):
    """Raised when a command that only reads finds no log. None was made.

    Operator action: import something, or name the log with `--log URL` or FOLDLINE_URL.
    """

    def __init__(self, url: str, looked_at: str) -> None:
        self.url = url
        self.looked_at = looked_at
        super().__init__(
            f"no log here yet: {looked_at}; `foldline import PATH` fills one, "
            "--log URL or FOLDLINE_URL names another"
        )


class AmbiguousSessionError(FoldlineError):
    """Raised when more than one session begins with what was given."""

    def __init__(self, prefix: str, candidates: list[str]) -> None:
        self.prefix = prefix
        self.candidates = candidates
        super().__init__(
            f"several sessions begin with {prefix!r}: {', '.join(candidates)}; "
            "give more of it"
        )


class NoRequestError(FoldlineError):
    """Raised when no request of this id waits, nor did lately."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted
        super().__init__(
            f"no request {wanted!r} waits, nor did lately; "
            "`foldline approvals list` shows what does"
        )


class NoDemoError(FoldlineError):
    """Raised when the example's source is not beside the installed package."""

    def __init__(self, looked_at: str) -> None:
        self.looked_at = looked_at
        super().__init__(
            f"the demo is not installed ({looked_at} does not exist); it comes with the "
            "source: clone the repository and run `make demo` there"
        )


class UnknownTypeError(FoldlineError):
    """Raised when an event type is none that this foldline knows."""

    def __init__(self, event_type: str, candidates: list[str]) -> None:
        self.event_type = event_type
        self.candidates = candidates
        near = f"did you mean {' or '.join(candidates)}?" if candidates else ""
        super().__init__(
            f"no event type {event_type!r}; "
            + (near or "`foldline schemas show` lists them")
        )


_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (AppendRefusedError, NO),
    (AnswerRefusedError, NO),
    (NotAPersonError, NO),
    (SchemaError, NO),
    (ExportLossError, NO),
    (ExportRefusedError, NO),
    (LiveOwnerError, NO),
    (SessionExistsError, NO),
    (UsageError, USAGE),
    (SettingsError, USAGE),
    (EncodeError, USAGE),
    (ForkPointError, USAGE),
    (SessionIdError, USAGE),
    (NoLogError, NOT_FOUND),
    (NoLogMetaError, NOT_FOUND),
    (NoRecordError, NOT_FOUND),
    (AmbiguousSessionError, NOT_FOUND),
    (NoRequestError, NOT_FOUND),
    (UnknownTypeError, NOT_FOUND),
    (NoDemoError, NOT_FOUND),
    (SessionNotFoundError, NOT_FOUND),
    (ReplayError, USAGE),
    (ImportSourceError, NOT_FOUND),
    (FileNotFoundError, NOT_FOUND),
    (LogError, STORAGE),
    (LineageError, STORAGE),
    (DecodeError, STORAGE),
    (BlobError, STORAGE),
    (RedactionError, STORAGE),
    (TraceExportError, STORAGE),
    (OSError, STORAGE),
    (FoldlineError, INTERNAL),
)


def exit_code_of(error: BaseException) -> int:
    """The exit code of an error that ends a command."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return INTERNAL


def message_of(error: BaseException) -> str:
    """What went wrong and what to do, for one line."""
    if isinstance(error, FoldlineError):
        return str(error)
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        return f"{name}{error.strerror or error}"
    return (
        f"a defect of foldline ({type(error).__name__}: {error}); "
        "FOLDLINE_DEBUG=1 shows where"
    )


def view_of(error: BaseException) -> dict[str, object]:
    """The error for machines: its kind, its fields, and whether to try again."""
    fields: dict[str, object] = {
        name: value
        for name, value in vars(error).items()
        if isinstance(value, (str, int, list)) and not name.startswith("_")
    }
    return fields | {
        "kind": type(error).__name__,
        "message": message_of(error),
        "exit_code": exit_code_of(error),
        "retryable": bool(getattr(error, "retryable", False)),
    }
