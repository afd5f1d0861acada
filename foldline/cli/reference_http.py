"""The reference page of the read service, made from its OpenAPI and from its limits.

A test fails when a route can answer a problem that no row here names.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from foldline.processors.clock import wall_clock
from foldline.processors.http_wire import API, APPENDS_MAX
from foldline.processors.memory_blobs import MemoryBlobs
from foldline.processors.memory_log import MemoryLog
from foldline.projections import (
    service_events,
    service_forks,
    service_recovery,
    service_sessions,
)
from foldline.projections.service import fastapi_of
from foldline.projections.service_limits import BURST_S, SHAPED_WAITING_MAX
from foldline.projections.service_node import (
    DOWNLOADS_MAX,
    TENANT_DOWNLOADS_MAX,
    TENANT_UPLOADS_MAX,
    UPLOADS_MAX,
    Node,
)
from foldline.projections.service_server import GRACE_S, HEAD_TIMEOUT_S, KEEP_ALIVE_S
from foldline.projections.tokens import SCOPES, TOKENS_MAX, NoTokens
from foldline.settings import PREFIX, Settings

MADE = "<!-- Made by `make docs` from the code. Do not edit. -->"

ANY = "any route"
SESSION = "routes of a session"
ANSWERS = ("grant", "deny", "provide_input")
JSON_APPENDS = ("append_event", "fork_session", "steer", "cancel", *ANSWERS)


class Told(NamedTuple):
    """A problem: what it says, on which routes, and whether to ask again."""

    status: int
    kind: str
    means: str
    where: str | tuple[str, ...] = ANY
    again: bool = False


PROBLEMS = (
    Told(
        400,
        "bad_cursor",
        "`cursor` is none of this service's",
        ("list_sessions", "list_children"),
    ),
    Told(400, "bad_last_event_id", "`Last-Event-ID` is no seq", ("stream_events",)),
    Told(400, "bad_session_id", "the id in the path is no session's", SESSION),
    Told(400, "bad_sha256", "a blob's name is no SHA-256", ("store_blob", "fetch_blob")),
    Told(400, "undecodable", "the body is not what the route takes", ("append_batch",)),
    Told(401, "no_token", "no bearer token, an unknown one, or one that has ended"),
    Told(403, "no_scope", "the token lacks the route's scope, or the event's"),
    Told(
        403, "no_token", "a service without tokens, asked by a page or under another name"
    ),
    Told(
        403,
        "no_person",
        "only a person's token answers for a person",
        (*ANSWERS, "append_event", "append_batch"),
    ),
    Told(
        403,
        "no_role",
        "the request names roles, and the token has none of them",
        (*ANSWERS, "append_event", "append_batch"),
    ),
    Told(
        403,
        "own_request",
        "who asked, owns the session or is its agent does not answer",
        (*ANSWERS, "append_event", "append_batch"),
    ),
    Told(404, "no_blob", "the blob is not there, or not the tenant's"),
    Told(
        404,
        "no_event",
        "the session has no event at that seq",
        ("show_state", "show_context", "compare_contexts"),
    ),
    Told(
        404,
        "no_model_call",
        "the session has no such model call",
        ("show_request", "compare_contexts"),
    ),
    Told(404, "no_request", "no such request waits: answered, or expired", ANSWERS),
    Told(404, "no_schema", "no schema has this id", ("show_schema",)),
    Told(404, "no_session", "no such session, or it is another tenant's", SESSION),
    Told(404, "not_found", "no such route"),
    Told(405, "method_not_allowed", "the route has other methods"),
    Told(408, "too_slow", "the body did not come in in time"),
    Told(409, "lineage", "a fork's ancestor is missing, or not the one that was forked"),
    Told(409, "no_replica", "this node's log has no replica", ("write_checkpoint",)),
    Told(
        409, "other_arguments", "the request is for other arguments: look again", ("grant",)
    ),
    Told(409, "other_request", "a question is not granted, a permission not told", ANSWERS),
    Told(409, "refused", "the log refused an append that came with yours", JSON_APPENDS),
    Told(
        410, "truncated", "events were deleted from the log; the body says which", SESSION
    ),
    Told(413, "too_large", "the body is larger than it may be"),
    Told(413, "too_many_appends", f"more than {APPENDS_MAX} at once", ("append_batch",)),
    Told(415, "bad_media_type", "the body is of another type", ("append_batch",)),
    Told(
        421, "another_node", "another node serves it; `served` says what this does", SESSION
    ),
    Told(422, "bad_answer", "the answer is none to this question", ("provide_input",)),
    Told(422, "bad_edit", "the edited arguments cannot be granted", ("grant",)),
    Told(422, "bad_event", "a field of the event is wrong", ("append_event",)),
    Told(
        422,
        "bad_folder",
        "no path below the folder of copies, or taken",
        ("write_checkpoint",),
    ),
    Told(422, "bad_request", "a parameter or a field of the body is wrong"),
    Told(
        422,
        "bad_session_id",
        "no new session can be called so",
        ("append_event", "append_batch", "fork_session"),
    ),
    Told(
        422,
        "bad_setting",
        "no such policy of contexts",
        ("show_context", "compare_contexts"),
    ),
    Told(422, "bad_target", "`target_id` and target CALL go together", ("cancel",)),
    Told(422, "fork_point", "the session cannot be forked there", ("fork_session",)),
    Told(
        422,
        "no_blob",
        "the event names a blob that the tenant has not uploaded",
        ("append_event", "append_batch"),
    ),
    Told(
        422,
        "no_known_seq",
        "`event_id` comes with `known_seq`",
        ("append_event", "cancel", *ANSWERS),
    ),
    Told(422, "other_bytes", "the bytes have another SHA-256", ("store_blob",)),
    Told(422, "unknown_type", "no such event type", ("append_event",)),
    Told(422, "unwritable", "the event cannot be written as Avro", JSON_APPENDS),
    Told(429, "too_many", "more than the token or the tenant may", again=True),
    Told(500, "internal", "a defect; the service's log has it"),
    Told(500, "log_failed", "the log answers with an error of its own"),
    Told(500, "redaction_failed", "a redaction rule failed; nothing is kept", JSON_APPENDS),
    Told(503, "busy", "too many wait already", again=True),
    Told(503, "catching_up", "the node has not read that partition yet", again=True),
    Told(503, "log_unavailable", "the log does not answer", again=True),
    Told(503, "no_rules", "the log has no rules of admission in force yet", again=True),
    Told(503, "registry_unavailable", "the schema registry does not answer", again=True),
    Told(
        503,
        "not_so_far",
        "the session did not come to `min_seq` in time",
        SESSION,
        again=True,
    ),
    Told(503, "stopped", "that partition is read no further: see the node", again=True),
    Told(503, "stopping", "the service stops", again=True),
    Told(504, "uncertain", "the append may be recorded: send the same again", again=True),
    Told(507, "no_copy", "the copy cannot be written", ("write_checkpoint",)),
)
"""Every problem of the service, by status and kind."""


ABOUT = f"""
`foldline serve` answers below `{API}`; only `/healthz`, `/readyz` and
`/metrics` are at the root. It describes itself as OpenAPI at
`{API}/openapi.json`, without a token: take that for bodies, parameters and
answers, and to make clients. This page is an overview.

A token goes into `Authorization: Bearer`; [operations](operations.md#security) say how
it is made, [security](../SECURITY.md) what it protects. A session's id stands in a path
as it is, if it is made of letters, digits and `._:-`; any other is `~` and the base64url
of its UTF-8. An append is answered with status 200 and a [verdict](rules.md), whatever
the verdict is: `recorded` says whether the event is in the log.
"""

ABOUT_ROUTES = """
*Of its own* are the problems that this route can have beside those of any route and of
any session. In appended events, decisions, facts and claims need `own`, a person's
answer `approve`.
"""

ABOUT_PROBLEMS = """
They are RFC 9457, `application/problem+json`: `type`, `status`, `title`, `kind`,
`detail`, `retryable`. `kind` never changes its meaning; `detail` is for people. One with
*again* has `Retry-After`, in seconds: ask the same again then. Any other gets the same
answer as long as nothing changes.
"""


def http_page() -> str:
    """Routes, scopes, problems and limits."""
    problems = ["status", "kind", "means", "where", "again"]
    return "\n".join(
        [
            f"# HTTP\n\n{MADE}\n{ABOUT}",
            "## Scopes\n",
            *_table(["scope", "allows"], [[f"`{k}`", v] for k, v in SCOPES.items()]),
            f"\n## Routes\n{ABOUT_ROUTES}",
            *_table(
                ["route", "scope", "does", "of its own"], _routes(described()["paths"])
            ),
            f"\n## Problems\n{ABOUT_PROBLEMS}",
            *_table(problems, _problems()),
            "\n## Limits\n",
            *_table(["what", "limit", "beyond it", "set by"], _limits()),
            "",
        ]
    )


def described() -> dict[str, Any]:
    """What the service says of itself."""
    settings = Settings(url="memory:")
    log = MemoryLog(settings=settings, clock=wall_clock)
    node = Node(log, settings, NoTokens(), lambda append: [append], _no_uploads)
    try:
        return fastapi_of(node).openapi()
    finally:
        node.close()
        log.close()


def _no_uploads(_: str) -> MemoryBlobs:
    return MemoryBlobs(max_bytes=1)


def _routes(paths: dict[str, Any]) -> Iterator[list[str]]:
    for path, methods in paths.items():
        for method, operation in methods.items():
            yield [
                f"`{method.upper()} {path.removeprefix(API)}`",
                ", ".join(f"`{scope}`" for scope in sorted(_scopes(operation))) or "none",
                _first_sentence(operation["description"]),
                ", ".join(_own(operation["operationId"])),
            ]


def _scopes(operation: dict[str, Any]) -> set[str]:
    needed = cast("list[dict[str, list[str]]]", operation.get("security", ()))
    return {scope for one in needed for scopes in one.values() for scope in scopes}


def _first_sentence(text: str) -> str:
    said = " ".join(text.partition("\n\n")[0].split())
    return said.partition(". ")[0].removesuffix(".")


def _own(name: str) -> Iterator[str]:
    for told in PROBLEMS:
        if not isinstance(told.where, str) and name in told.where:
            yield f"{told.status} {told.kind}"


def _problems() -> Iterator[list[str]]:
    for told in PROBLEMS:
        where = told.where if isinstance(told.where, str) else "see the routes"
        again = "again" if told.again else ""
        yield [str(told.status), f"`{told.kind}`", told.means, where, again]


def _limits() -> Iterator[list[str]]:
    settings = Settings.model_construct()  # the defaults, whatever is set here

    def of(name: str, unit: str) -> tuple[str, str]:
        return f"{getattr(settings, name):,} {unit}", f"`{PREFIX}{name.upper()}`"

    def row(what: str, limit: tuple[str, str], beyond: str) -> list[str]:
        return [what, limit[0], beyond, limit[1]]

    yield row("body of a request", of("http_body_max_bytes", "bytes"), "413 too_large")
    yield row("body of a blob", of("blob_max_bytes", "bytes"), "413 too_large")
    yield row("time for a body", of("http_body_timeout_ms", "ms"), "408 too_slow")
    yield row("time for a head", (f"{HEAD_TIMEOUT_S} s", ""), "the connection is closed")
    yield row("an answer left unread", of("http_send_timeout_ms", "ms"), "the same")
    yield row("a connection at rest", (f"{KEEP_ALIVE_S} s", ""), "the same")
    yield row("end of the service", (f"{GRACE_S} s", ""), "requests are cut off")
    per_s = f"a second, {BURST_S} s' worth at once"
    yield row(
        "requests and events of a token", of("token_rate_per_s", per_s), "429 too_many"
    )
    yield row("of a tenant", of("tenant_rate_per_s", per_s), "429 too_many")
    yield row("connections", of("http_connections_max", ""), "503")
    yield row("streams and waits", of("http_streams_max", ""), "503 busy")
    yield row("of a tenant", of("tenant_streams_max", ""), "429 too_many")
    yield row("reads at once", of("http_readers", ""), "they wait")
    yield row("appends at once", of("http_appenders", ""), "they wait")
    yield row("requests that wait for these", of("http_waiting_max", ""), "503 busy")
    yield row("uploads at once", (str(UPLOADS_MAX), ""), "they wait")
    yield row("of a tenant", (str(TENANT_UPLOADS_MAX), ""), "they wait")
    yield row("downloads of blobs at once", (str(DOWNLOADS_MAX), ""), "they wait")
    yield row("of a tenant", (str(TENANT_DOWNLOADS_MAX), ""), "they wait")
    yield row(
        "contexts by another policy that wait", (str(SHAPED_WAITING_MAX), ""), "503 busy"
    )
    yield row("wait for a `min_seq`", of("read_wait_ms", "ms"), "503 not_so_far")
    wait_max = f"{service_events.WAIT_MAX_MS:,} ms"
    yield row("`wait_ms`", (wait_max, ""), "422 bad_request")
    yield row("a stream's silence", of("http_heartbeat_ms", "ms"), "a comment is sent")
    page_max = f"{service_events.PAGE_MAX:,} events"
    yield row("a page of events", (page_max, ""), "422 bad_request")
    scanned = f"{service_events.SCANNED_MAX:,} events"
    yield row("events that a page of types looks through", (scanned, ""), "`more` is true")
    sessions = f"{service_sessions.PAGE_MAX:,} sessions"
    yield row("a page of sessions", (sessions, ""), "422 bad_request")
    kin = f"{service_forks.CHILDREN_MAX:,} sessions"
    yield row("a page of a session's children", (kin, ""), "422 bad_request")
    index = f"{service_sessions.INDEX_MAX:,} rows"
    yield row("a page of `/stored/sessions`", (index, ""), "`foldline-more`")
    seen = f"{service_recovery.LOOKED_AT_MAX:,} of each status"
    yield row("sessions that `/recovery` looks at", (seen, ""), "`more` is true")
    told = f"{service_recovery.SHOWN_MAX:,} sessions"
    yield row("those that it shows", (told, ""), "`more` is true")
    yield row(
        "bytes of a page or stream", of("http_stream_buffer_bytes", "bytes"), "`more`"
    )
    yield row("appends of a batch", (str(APPENDS_MAX), ""), "413 too_many_appends")
    yield row("tokens in the file", (f"{TOKENS_MAX:,}", ""), "the file is refused")


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    for cells in (header, ["---"] * len(header), *rows):
        yield (
            "|"
            + "|".join(f" {' '.join(cell.split())} " if cell else " " for cell in cells)
            + "|"
        )
