"""Every error that foldline raises as a library.

FoldlineError
├── AppendRefusedError        admission answered something else than ACCEPTED or DUPLICATE
│   ├── ConflictError         somebody appended in between: read again, decide again
│   ├── FencedError           another owner has taken the session over: stop
│   └── UnrecoverableError    events of the session were deleted: nothing is recorded
├── SessionNotFoundError      no such session in this log
├── SessionExistsError        a session of this id is there already
├── SessionIdError            no new session can be called this
├── MirroredSessionError      a session that mirrors another harness has no owner
├── LiveOwnerError            take() found an owner whose lease is alive
├── PendingSteeringError      complete() would pass over what somebody has said since
├── SubagentEndedError        a subagent cannot go on: its session has ended
├── UndeclaredSecretError     a tool wants a secret that it does not declare
├── ForkPointError            a session cannot be forked there: no event at that seq
├── LineageError              a fork's history has a gap: an ancestor is not as it was
├── AnswerRefusedError        a request that waits no more, or wants another answer
├── NotAPersonError           a client that is no person's answered for a person
├── StartTooLateError         an effect was not begun: its start_by had passed
├── LogError                  what a log, its files, its brokers or its service cannot do
│   ├── LogUnavailableError   disk full, locked, no answer: this append is not recorded
│   │   ├── UncertainAppendError   no verdict in time: it may or may not be recorded
│   │   └── ReadUnavailableError   a read cannot be answered now
│   ├── RegistryUnavailableError  the schema registry does not answer
│   ├── NoLogMetaError        the brokers have no log under this prefix
│   ├── NoRecordError         a topic has no such record, or not any more
│   ├── TopicDriftError       topics are not as a log needs them: nothing was started
│   ├── NoRulesError          nothing says which rules are in force
│   ├── NoWorkerError         nobody answers the appends of a log on Kafka
│   ├── SlotTakenError        another worker has this slot's folder
│   ├── WorkerFencedError     another worker has this slot's transactional.id
│   ├── WorkerFailedError     a worker's Kafka client is beyond repair
│   ├── RefusedRequestError   the service understood a request, and will not do it
│   │   └── AnotherNodeError       the session is in a partition that it does not serve
│   ├── LogFormatError        the file is torn, foreign or corrupt
│   ├── LogTruncatedError     the topic no longer has what a reader needs
│   │   └── SessionTruncatedError  nor what a session's state or events rest on
│   ├── TableCorruptError     a table that can be rebuilt is damaged or foreign
│   └── NewerFormatError      written by a newer foldline: upgrade, nothing was changed
├── AccessRefusedError        the service does not know the token, or not for this
├── DecodeError               bytes that are no event of a known schema
│   └── NoAppendError         a record of `appends` that is no append
├── EncodeError               an event that no Avro bytes can hold
├── SchemaError               a schema that may not be published
├── RedactionError            the redactor failed: nothing was recorded
├── ContextInvariantError     a context that no model may be shown: it was not built right
├── BlobError                 a blob is missing, or its bytes do not match its hash
├── ImportSourceError         a file that no importer understands
├── ExportRefusedError        a session that cannot be written in a format
├── ExportLossError           a session that does not come back whole from its own format
├── TraceExportError          spans could not be sent to an OTLP receiver
│   └── SpansRefusedError      it will not have these spans; others it may take
├── PolicyRuleError           a rule of a policy failed on an event
├── ReplayError               a session that no harness can be replayed on
├── RecordedFailureError      in a replay: the model call failed when it was recorded
└── SettingsError             a setting or an URL that means nothing

Expected outcomes are values (a `Verdict`, a plan); these are for what the caller
cannot have meant. Each one says in `retryable` whether the same call may work later.
What a tool raises that failed is its own: `ToolError` in `foldline.tools`; what
the command says of its arguments is in `foldline.cli.failures`.
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


class UnrecoverableError(AppendRefusedError):
    """Raised when events of the session were deleted, and nobody knows its state.

    Nothing is recorded in it any more. `verdict.current_seq` is the last seq of which a
    state was known; `verdict.detail` says what is missing.

    Operator action: bring the events back from a copy of the topic, or go on in another
    session; a fork at a seq that a reader still has keeps its history.
    """


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


class SessionIdError(FoldlineError):
    """Raised when a new session is named by what no session can be called.

    Nothing was made. What the id may be: `foldline.processors.naming`.
    """

    def __init__(self, session_id: str, reason: str) -> None:
        self.session_id = session_id
        self.reason = reason
        super().__init__(f"no new session can be called {session_id!r}: {reason}")


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


class PendingSteeringError(FoldlineError):
    """Raised when a session is to be completed that somebody has steered since.

    Nothing is recorded. Put it before the model in one more turn
    (`OwnedSession.steered_turn`), or complete with `expire_steering="why not"`.
    """

    def __init__(self, session_id: str, pending: list[str]) -> None:
        self.session_id = session_id
        self.pending = pending
        super().__init__(
            f"session {session_id!r} is not complete: steering {', '.join(pending)} is "
            "pending; take it up in a turn, or complete with expire_steering=REASON"
        )


class SubagentEndedError(FoldlineError):
    """Raised when a subagent is to go on whose session has ended.

    What it came to is the result of its call: `OwnedSession.subagent_result`.
    """

    def __init__(self, child_session_id: str, status: str) -> None:
        self.child_session_id = child_session_id
        self.status = status
        super().__init__(
            f"subagent {child_session_id!r} has ended ({status}); "
            "owned.subagent_result(call) gives what it came to"
        )


class UndeclaredSecretError(FoldlineError):
    """Raised in a tool that wants a secret which its `Tool(secrets=...)` does not name."""

    def __init__(self, name: str, declared: list[str]) -> None:
        self.name = name
        self.declared = declared
        super().__init__(
            f"this tool may not receive secret {name!r}; it declares "
            f"{', '.join(declared) or 'none'}"
        )


class ForkPointError(FoldlineError):
    """Raised when a session cannot be forked at a seq. Nothing was made.

    A fork point is a session and a seq of its events, never a place in some list of
    them that is shown.
    """

    def __init__(self, session_id: str, at_seq: int, reason: str) -> None:
        self.session_id = session_id
        self.at_seq = at_seq
        self.reason = reason
        super().__init__(f"cannot fork {session_id!r} at seq {at_seq}: {reason}")


class LineageError(FoldlineError):
    """Raised when a fork's history cannot be joined. Its own events stay readable.

    Operator action: bring the named ancestor back into this log as it was: restore it,
    or import it again. `foldline verify` says of every fork whether its parent is right.
    """

    def __init__(self, session_id: str, ancestor_id: str, reason: str) -> None:
        self.session_id = session_id
        self.ancestor_id = ancestor_id
        self.reason = reason
        super().__init__(
            f"the history of {session_id!r} goes on from {ancestor_id!r}: {reason}"
        )


class AnswerRefusedError(FoldlineError):
    """Raised when a person's answer does not fit a request: it is over, or another.

    Nothing was recorded. `reason` says why, `advice` what to do instead.
    """

    def __init__(self, request_id: str, reason: str, advice: str) -> None:
        self.request_id = request_id
        self.reason = reason
        self.advice = advice
        super().__init__(f"request {request_id!r}: {reason}; {advice}")


class NotAPersonError(FoldlineError):
    """Raised when a client whose actor is no PERSON grants, denies or answers.

    An agent cannot approve itself: connect with the actor of the person who decides.
    """

    def __init__(self, request_id: str, kind: str, actor_id: str) -> None:
        self.request_id = request_id
        self.kind = kind
        self.actor_id = actor_id
        super().__init__(
            f"request {request_id!r} is for a person; this client is {kind} {actor_id!r}: "
            "the person answers with `foldline approvals`, or a client of their own"
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

    (One that may be is an UncertainAppendError.) Of more appends than one transaction
    takes, the first `recorded` ones may be recorded, without their answers: a resend is
    told so.

    Operator action: free disk space, end the process that holds the lock, or give this
    user the right to write; then the same append, with the same event_id, may be made
    again.
    """

    retryable = True

    def __init__(self, url: str, reason: str, *, recorded: int = 0) -> None:
        self.url = url
        self.reason = reason
        self.recorded = recorded
        but = f" but the first {recorded} appends" if recorded else ""
        super().__init__(self._said(f"nothing{but} was recorded"))

    def _said(self, result: str) -> str:
        return f"{self.url} did not take it: {self.reason}; {result}"


class UncertainAppendError(LogUnavailableError):
    """Raised when an append got no verdict in time. It may or may not be recorded.

    The same append, with the same event_id and known_seq, is safe to make again: its
    verdict tells. Until then the log's own state is what counts.

    Operator action: the reason says how far it came. Not acknowledged: look at the
    brokers. Acknowledged without a verdict: look whether a worker runs, and whether it
    is ready.
    """

    def _said(self, result: str) -> str:  # noqa: ARG002 - nobody knows the result
        return f"no verdict from {self.url}: {self.reason}; it may or may not be recorded"


class ReadUnavailableError(LogUnavailableError):
    """Raised when a read cannot be answered now: what it needs is not here yet.

    Operator action: the reason says how far the replica is, or what keeps it: free disk
    space, look at the brokers; a new replica of a long topic needs its time.
    """

    def _said(self, result: str) -> str:  # noqa: ARG002 - a read records nothing
        return f"{self.url} cannot be read now: {self.reason}"


class RegistryUnavailableError(LogError):
    """Raised when the schema registry gives no answer, or one that is none.

    What was looked up before goes on working: only a new schema waits.

    Operator action: start the registry, or set FOLDLINE_REGISTRY_URL to where it is.
    """

    retryable = True

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(f"schema registry {url} does not answer: {reason}")


class NoLogMetaError(LogError):
    """Raised when the brokers hold no log under this prefix.

    Operator action: `foldline schemas register`, then `foldline topics create`; or
    correct FOLDLINE_TOPIC_PREFIX.
    """

    def __init__(self, url: str, topic: str) -> None:
        self.url = url
        self.topic = topic
        super().__init__(
            f"no log in {url}: topic {topic} says nothing; "
            "run `foldline schemas register` and `foldline topics create`"
        )


class NoRecordError(LogError):
    """Raised when a topic holds no record at an offset, or not any more."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.reason = reason
        super().__init__(f"nothing at {topic} {partition}:{offset}: {reason}")


class TopicDriftError(LogError):
    """Raised when topics are not as a log needs them. Nothing was started.

    Operator action: `foldline topics check` lists what differs; set it right.
    """

    def __init__(self, url: str, drifts: list[str]) -> None:
        self.url = url
        self.drifts = drifts
        super().__init__(
            f"topics of {url} are not as they must be: {'; '.join(drifts)}; "
            "`foldline topics check` lists what differs"
        )


class SlotTakenError(LogError):
    """Raised when another process of this machine works in a worker's slot.

    Operator action: end that process, or give this one another FOLDLINE_WORKER_SLOT
    (or none: then the first free one of the folder is taken).
    """

    def __init__(self, slot: str, folder: str) -> None:
        self.slot = slot
        self.folder = folder
        super().__init__(f"slot {slot} in {folder} is held by another worker process")


class NoRulesError(LogError):
    """Raised when events were admitted, but nothing says which rules are in force.

    Operator action: `foldline topics upgrade` writes control records; the partition
    goes on by itself after that.
    """

    retryable = True

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(
            f"{url}: nothing says which rules are in force; run `foldline topics upgrade`"
        )


class NoWorkerError(LogError):
    """Raised by who looks before appending, when no worker is in a log's group.

    Operator action: start a `foldline worker` of this log.
    """

    retryable = True

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(f"{url}: no worker answers appends; start a `foldline worker`")


class WorkerFencedError(LogError):
    """Raised when a worker was fenced repeatedly: a twin has the same slot.

    Nothing is lost: the twin goes on. A worker that was frozen is fenced once, and
    goes on after a restore.

    Operator action: give each worker its own FOLDLINE_WORKER_SLOT; then start it again.
    """

    def __init__(self, transactional_id: str, times: int, within_ms: int) -> None:
        self.transactional_id = transactional_id
        self.times = times
        self.within_ms = within_ms
        super().__init__(
            f"fenced {times} times within {within_ms} ms: another worker uses the "
            f"transactional.id {transactional_id!r}; give each its own slot"
        )


class WorkerFailedError(LogError):
    """Raised when a worker cannot go on in this process.

    What it took is committed, or will be taken again.

    Operator action: let the supervisor start it again; if it comes back, the reason
    says what the brokers refuse.
    """

    retryable = True

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the worker cannot go on: {reason}")


class LogFormatError(LogError):
    """Raised when a log is torn, foreign or corrupt. Nothing was changed.

    Operator action: restore the file from a copy; `foldline verify` says how far
    its sessions are good.
    """

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(f"{url} is not a usable foldline log: {reason}")


class LogTruncatedError(LogError):
    """Raised when records that a reader or a restore still needs are gone from a topic.

    Sessions with events below `low` that no snapshot covers are unrecoverable from
    here; no state is made up for them.

    Operator action: bring the records back from a copy of the topic, or start the
    reader from a checkpoint that reaches `low`, taken on a node that has one; set the
    topic's retention to forever, as `foldline topics check` wants it.
    """

    def __init__(self, topic: str, partition: int, needed: int, low: int) -> None:
        self.topic = topic
        self.partition = partition
        self.needed = needed
        self.low = low
        super().__init__(
            f"{topic} [{partition}] begins at offset {low}, offset {needed} is needed: "
            f"records {needed} to {low - 1} were deleted"
        )


class SessionTruncatedError(LogTruncatedError):
    """Raised when what is asked for of a session rests on events that were deleted.

    The events after `known_seq` and before `next_seq` are missing (`next_seq` 0: none
    after them is here). Those before and those after can be read, each by its range.
    `unrecoverable` says that the workers do not know the session's state either.

    Operator action: as for LogTruncatedError; another node may still have them.
    """

    def __init__(
        self,
        session_id: str,
        *,
        topic: str,
        tenant: str,
        known_seq: int,
        next_seq: int,
        needed: int,
        low: int,
        unrecoverable: bool,
    ) -> None:
        super().__init__(topic, -1, needed, low)
        self.session_id = session_id
        self.tenant = tenant
        self.known_seq = known_seq
        self.next_seq = next_seq
        self.unrecoverable = unrecoverable
        upto = f" and before {next_seq}" if next_seq else ""
        state = "UNRECOVERABLE" if unrecoverable else "not whole here"
        said = (
            f"session {session_id!r} is {state}: its events after seq {known_seq}{upto} "
            f"are missing, {topic} has no records {needed} to {low - 1} any more"
        )
        self.args = (said,)


class TableCorruptError(LogError):
    """Raised when a table or replica on disk is damaged, or of another log or version.

    Operator action: none, if it happens once: it is set aside and rebuilt. If it
    happens again, look at the disk; delete what was set aside.
    """

    def __init__(self, folder: str, reason: str) -> None:
        self.folder = folder
        self.reason = reason
        super().__init__(f"{folder} cannot be used as it is: {reason}")


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


class RefusedRequestError(LogError):
    """Raised when a service refuses a request as it is; the same one gets the same answer.

    `problem` is the service's own word for it, `title` that of HTTP. Nothing was done, but
    the first `recorded` appends of a call that took several requests: those were answered.

    Operator action: the detail says what is wrong with it. For 413 a limit of the
    service's settings may be raised; a 405, or a 404 of a route, is a service of an older
    version, or no read service at all.
    """

    def __init__(
        self,
        url: str,
        *,
        status: int,
        title: str,
        problem: str,
        detail: str,
        recorded: int = 0,
    ) -> None:
        self.url = url
        self.recorded = recorded
        self.status = status
        self.title = title
        self.problem = problem
        self.detail = detail
        said = f"{status} {problem or title}".strip()
        super().__init__(f"{url} refused it ({said}): {detail}{_but_first(recorded)}")


class AnotherNodeError(RefusedRequestError):
    """Raised when a session is in a partition that the asked node does not serve (421).

    `served` are the first and the last of the `partitions` of the log that it serves.

    Operator action: name a node of every partition in FOLDLINE_READ_URL, separated by
    commas, or put something before the nodes that knows their ranges.
    """

    def __init__(
        self,
        url: str,
        detail: str,
        *,
        partition: int,
        partitions: int,
        served: list[int],
        recorded: int = 0,
    ) -> None:
        self.partition = partition
        self.partitions = partitions
        self.served = served
        super().__init__(
            url,
            status=421,
            title="Misdirected Request",
            problem="another_node",
            detail=f"{detail}, of {partitions}",
            recorded=recorded,
        )


class AccessRefusedError(FoldlineError):
    """Raised when a service refuses the token: unknown, ended, or of another scope.

    Nothing was done, but the first `recorded` appends of a call that took several
    requests: those were answered.

    Operator action: `foldline tokens add` on the service's side; the client's token
    is FOLDLINE_TOKEN.
    """

    def __init__(self, url: str, reason: str, *, recorded: int = 0) -> None:
        self.url = url
        self.reason = reason
        self.recorded = recorded
        super().__init__(f"{url} refuses this token: {reason}{_but_first(recorded)}")


def _but_first(recorded: int) -> str:
    """What was answered before a refusal; nothing where it was the first request."""
    return f"; the first {recorded} appends were answered before" if recorded else ""


class DecodeError(FoldlineError):
    """Raised when bytes are no event of a known schema, or beyond a limit."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"undecodable: {reason}")


class NoAppendError(DecodeError):
    """Raised when a record of `appends` is none; `word` says why, for metrics.

    `kind` is the verdict on it.
    """

    def __init__(self, word: str, reason: str, kind: str = "UNDECODABLE") -> None:
        self.word = word
        self.kind = kind
        super().__init__(reason)


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


class ContextInvariantError(FoldlineError):
    """Raised when a built context breaks an invariant, in the place of a bad request.

    `event_ids` are the events of the messages that break it.

    *Operator action:* the session's log is whole, and nothing was sent. Show these events
    with `foldline events`, and report them: the builder does not understand this history.
    """

    def __init__(self, problem: str, event_ids: tuple[str, ...]) -> None:
        self.problem = problem
        self.event_ids = event_ids
        super().__init__(f"context: {problem} (events {', '.join(event_ids) or 'none'})")


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


class ExportRefusedError(FoldlineError):
    """Raised when a session cannot be written in a format. Nothing was written."""

    def __init__(self, session_id: str, format: str, reason: str) -> None:  # noqa: A002 - the word for it
        self.session_id = session_id
        self.format = format
        self.reason = reason
        super().__init__(f"session {session_id!r} cannot be exported as {format}: {reason}")


class ExportLossError(FoldlineError):
    """Raised when an export, imported again, is not the session. Nothing was written.

    `lost` says of how many facts by the type of their record, `examples` what differs.

    Operator action: `foldline export --format jsonl` loses nothing; `--lossy` writes what
    there is.
    """

    def __init__(
        self,
        session_id: str,
        format: str,  # noqa: A002 - the word for it
        lost: dict[str, int],
        examples: list[str],
    ) -> None:
        self.session_id = session_id
        self.format = format
        self.lost = lost
        self.examples = examples
        counts = ", ".join(f"{name} {count}" for name, count in lost.items())
        super().__init__(
            f"session {session_id!r} does not come back whole from {format}: {counts}; "
            "--lossy writes what there is, --format jsonl loses nothing"
        )


class TraceExportError(FoldlineError):
    """Raised when spans could not be sent. Sending them again makes no second ones.

    `retryable` where the receiver was away; else it will not have them as they are.

    Operator action: look at the receiver, or at the URL and OTEL_EXPORTER_OTLP_HEADERS;
    then export again: it goes on from where it came to.
    """

    def __init__(self, url: str, reason: str, *, retryable: bool) -> None:
        self.url = url
        self.reason = reason
        self.retryable = retryable
        super().__init__(f"no spans could be sent to {url}: {reason}")


class SpansRefusedError(TraceExportError):
    """Raised when a receiver will not have these spans as they are; others it may take.

    Operator action: look at what the receiver says of them. Other sessions go on; these
    spans are offered again by and by.
    """

    def __init__(self, url: str, status: int) -> None:
        self.status = status
        super().__init__(url, f"status {status}", retryable=False)


class PolicyRuleError(FoldlineError):
    """Raised when a rule of a policy fails on an event. Nothing of it is recorded.

    At work it is out for that session; the others go on.

    Operator action: mend the rule, start the runner again, and raise the rule's version
    if it then means something else. It judges that session from where it failed.
    """

    def __init__(self, rule: str, session_id: str, seq: int, reason: str) -> None:
        self.rule = rule
        self.session_id = session_id
        self.seq = seq
        self.reason = reason
        super().__init__(f"rule {rule!r} failed at seq {seq} of {session_id}: {reason}")


class ReplayError(FoldlineError):
    """Raised when a harness cannot be replayed on a session: what it needs is not there."""

    def __init__(self, session_id: str, reason: str) -> None:
        self.session_id = session_id
        self.reason = reason
        super().__init__(f"session {session_id!r} cannot be replayed: {reason}")


class RecordedFailureError(FoldlineError):
    """Raised in a replay in the place of the error with which a model call had failed.

    Retryable as the real one was: a harness that asked again is answered by the record.
    """

    retryable = True

    def __init__(self, error_type: str, said: str) -> None:
        self.error_type = error_type
        self.said = said
        super().__init__(f"the model call failed when it was recorded: {error_type} {said}")


class SettingsError(FoldlineError):
    """Raised when a setting or an URL means nothing; the message says what would."""

    def __init__(self, name: str, value: str, wanted: str) -> None:
        self.name = name
        self.value = value
        self.wanted = wanted
        super().__init__(f"{name}={value!r}: {wanted}")


UNREADABLE = (LogFormatError, LogTruncatedError, LineageError)
"""What may be wrong with one session: it is named, and the others can be read."""
