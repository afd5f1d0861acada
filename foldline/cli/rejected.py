"""`foldline rejected`: what workers of a log on Kafka refused, and sending it again."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from foldline.cli.clean import clean_line
from foldline.cli.context import Context
from foldline.cli.failures import NO, OK, UsageError

if TYPE_CHECKING:
    from foldline.processors.kafka_rejected import RawAppend, Rejected, Rejection

BYTES_SHOWN = 256
"""How many bytes of a value are shown to people; `--json` has all."""

LIMIT_MAX = 10_000
"""How many rejections one list may have."""

UNREADABLE = "UNREADABLE"
"""The kind of a record of `rejected` that says of no append why it was rejected."""

rejected = App(
    name="rejected",
    help="List, show and replay what the workers of a log on Kafka rejected.",
    help_format="plaintext",
    help_epilogue="",
    version_flags=(),
)


@rejected.command(name="list")
def list_(
    *,
    limit: int = 20,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """List the newest rejected appends, the newest first.

    Args:
        limit: How many.
        context: Where to read and write.
    """
    if not 1 <= limit <= LIMIT_MAX:
        raise UsageError("--limit", f"1 to {LIMIT_MAX}")
    with _open(context) as topic:
        found = topic.newest(limit)
    for rejection in found:
        view = _view(rejection)
        if context.out.json:
            context.out.record(view)
            continue
        context.out.line(
            (f"{view['at']:<10} ", "bold"),
            (f"{view['time']}  ", ""),
            (f"{view['kind']:<12} ", "cyan"),
            (f"{clean_line(view['session_id'])}  ", ""),
            (clean_line(f"{view['reason']}: {view['detail']}"), ""),
        )
    return OK


@rejected.command
def show(
    at: str,
    /,
    *,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Show one rejected append: why, its headers, and its bytes.

    The bytes of a refused append are in the topic of appends, for a week.

    Args:
        at: PARTITION:OFFSET, as `foldline rejected list` says it.
        context: Where to read and write.
    """
    from foldline.errors import NoRecordError  # late: --help does without
    from foldline.processors.kafka_rejected import Unreadable

    with _open(context) as topic:
        rejection = topic.at(*_place(at))
        try:
            record = rejection.record
            alien = isinstance(record, Unreadable)
            raw = record.raw if alien else topic.append_of(rejection)
            gone = ""
        except NoRecordError as error:
            raw, gone = None, str(error)
    view = _view(rejection) | _bytes_view(raw, gone)
    if context.out.json:
        context.out.record(view)
        return OK
    for name, value in view.items():
        _show_field(context, name, value)
    return OK


@rejected.command
def replay(
    at: str,
    /,
    *,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Send a rejected append once more, as it was, and wait for its verdict.

    Its event id stays, so what is recorded meanwhile is a DUPLICATE. Exit code 1 if it
    is refused again.

    Args:
        at: PARTITION:OFFSET, as `foldline rejected list` says it.
        context: Where to read and write.
    """
    with _open(context) as topic:
        done = topic.replay(topic.append_of(topic.at(*_place(at))))
    verdict, where = done.verdict, f"{done.partition}:{done.offset}"
    if context.out.json:
        from foldline.projections.views import plain  # late: see above

        context.out.record({"sent_to": where, "verdict": plain(verdict)})
    else:
        style = "green" if verdict.recorded else "red"
        detail = f" {verdict.rule} {verdict.detail}".rstrip()
        seq = f" seq {verdict.seq}" if verdict.recorded else ""
        line = clean_line(f"{seq}{detail}; sent to appends {where}")
        context.out.line((verdict.kind, style), (line, ""))
    return OK if verdict.recorded else NO


@contextmanager
def _open(context: Context) -> Generator["Rejected"]:
    from foldline.kafka import cluster_of  # late: see above
    from foldline.kafka_meta import read_meta
    from foldline.processors.kafka_rejected import Rejected

    settings = context.settings()
    cluster = cluster_of(settings)
    with context.registry(None) as registry:
        meta = read_meta(cluster, settings, schemas=registry)
        yield Rejected(cluster, settings, registry=registry, partitions=meta.partitions)


def _place(at: str) -> tuple[int, int]:
    partition, _, offset = at.partition(":")
    if not (partition.isdecimal() and offset.isdecimal() and len(at) < 30):  # noqa: PLR2004
        raise UsageError(at, "PARTITION:OFFSET, as `foldline rejected list` says it")
    return int(partition), int(offset)


def _view(rejection: "Rejection") -> dict[str, Any]:
    from foldline.processors.kafka_rejected import Unreadable
    from foldline.projections.views import iso_time  # late: see above
    from foldline.schemas.topic_records import DeadLetter

    record = rejection.record
    if isinstance(record, Unreadable):
        return {
            "at": f"{rejection.partition}:{rejection.offset}",
            "session_id": (record.raw.key or b"").decode(errors="replace"),
            "kind": UNREADABLE,
            "reason": "no worker's record",
            "detail": record.detail,
            "time": iso_time(record.recorded_at),
            "append": "",
            "dead_letter": False,
        }
    dead = isinstance(record, DeadLetter)
    view: dict[str, Any] = {
        "at": f"{rejection.partition}:{rejection.offset}",
        "session_id": record.session_id,
        "kind": record.kind,
        "reason": record.reason if dead else record.rule,
        "detail": record.detail,
        "time": iso_time(record.recorded_at),
        "append": f"{record.partition}:{record.offset}",
        "dead_letter": dead,
    }
    if isinstance(record, DeadLetter):
        return view
    return view | {
        "event_id": record.event_id,
        "event_type": record.event_type,
        "writer": record.writer,
        "known_seq": record.known_seq,
        "expected_seq": record.expected_seq,
    }


def _bytes_view(raw: "RawAppend | None", gone: str) -> dict[str, Any]:
    if raw is None:
        return {"gone": gone}
    return {
        "key": _both(raw.key),
        "headers": [{"name": name, **(_both(value) or {})} for name, value in raw.headers],
        "value": _both(raw.value),
    }


def _both(data: bytes | None) -> dict[str, Any] | None:
    """Bytes as text, where they are UTF-8, and as hex."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = None
    return {"utf8": text, "hex": data.hex(), "bytes": len(data)}


def _show_field(context: Context, name: str, value: Any) -> None:
    if name == "headers":
        for header in value:
            text = header["utf8"] if header["utf8"] is not None else header["hex"]
            context.out.line((f"{'header':<13}", "cyan"), (clean_line(header["name"]), ""))
            context.out.line((" " * 13, ""), (clean_line(text), ""))
        return
    context.out.line((f"{name:<13}", "cyan"), (_short(value), ""))


def _short(value: Any) -> str:
    if not isinstance(value, dict):
        return clean_line(str(value))
    data = bytes.fromhex(str(value["hex"]))  # pyright: ignore[reportUnknownArgumentType]
    shown = data[:BYTES_SHOWN]
    more = f" ({len(data)} bytes; --json has all)" if len(data) > len(shown) else ""
    try:
        return clean_line(shown.decode()) + more
    except UnicodeDecodeError:
        return shown.hex() + more
