"""How a fleet worker takes one event in: folded, and what follows from it appended.

Steps 1 to 4 of `foldline.processors.fleet`, without Faust: records come in, rows and
appends go out. An event is taken in whole or not at all: of one that failed, or that the
end of the process came before, nothing is kept and nothing behind it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol

from foldline.errors import (
    DecodeError,
    LogTruncatedError,
    LogUnavailableError,
    RegistryUnavailableError,
    WorkerFailedError,
)
from foldline.faults import crash_point
from foldline.processors.clock import wall_clock
from foldline.processors.fleet_port import Folding
from foldline.processors.kafka_records import Headers, append_offset_of
from foldline.processors.log import Log
from foldline.schemas.codec import Codec, unframe
from foldline.schemas.recorded import Append, Recorded
from foldline.schemas.topic_records import LOST_KEY, LOW_WATER_KEY
from foldline.schemas.verdicts import DUPLICATE, TOO_OLD, Verdict

RETRY_S = 1.0
"""How long one waits before asking a log or a registry again that did not answer."""

STOP_S = 2.0
"""How long the end of the process waits for an append under way."""

CHANGES_MAX = 2_000
"""How many changed rows wait at most before they are set, also if no commit is due."""

RENEWALS_MAX = 8
"""How often an append is made anew for a session that runs away from it."""

_logger = logging.getLogger("foldline.fleet")


class Rows(Protocol):
    """The table."""

    def row(self, partition: int, key: bytes) -> bytes | None:
        """A row as it was set last."""
        ...

    def set_row(self, partition: int, key: bytes, value: bytes | None) -> None:
        """Set a row, or delete it."""
        ...


class Taking:
    """Takes records in, one after the other. For one event loop."""

    def __init__(self, log: Log, codec: Codec, folding: Folding, rows: Rows) -> None:
        """Take records in with these.

        Args:
            log: takes appends.
            codec: decodes events.
            folding: what rows mean.
            rows: where they are kept.
        """
        self._log = log
        self._codec = codec
        self._folding = folding
        self._rows = rows
        self._thread = ThreadPoolExecutor(1, "fleet-append")
        self._appended = asyncio.Event()
        self._appended.set()
        self._stopping = asyncio.Event()
        self._failed = False
        self.gave_up = False
        """Whether an event is left half taken in because the process ends."""
        self.waits: dict[str, str] = {}
        """What is waited for, in words."""

    def stop(self) -> None:
        """Wait for nobody any more: the process ends."""
        self._stopping.set()

    def close(self) -> None:
        """Let go of the thread, whatever it waits for."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    # --- one event -------------------------------------------------------------------

    async def decoded(self, message: Any) -> Recorded | None:
        """Step 1: the event of a record; None for what is none."""
        try:
            append_offset_of(_headers(message))
            schema_id, body = unframe(message.value or b"")
        except DecodeError as error:
            self._skip(message, message.offset, error)
            return None
        while not self.gave_up:
            try:
                recorded = self._codec.decode(schema_id, body)
            except DecodeError as error:
                self._skip(message, message.offset, error)
                return None
            except RegistryUnavailableError as error:
                await self._wait("registry", str(error))
                continue
            self.waits.pop("registry", None)
            return recorded
        return None

    async def take(self, partition: int, offset: int, recorded: Recorded) -> None:
        """Steps 2 and 3, both whole or neither kept."""
        self._appended.clear()
        try:
            for append in self._folded(partition, offset, recorded):
                await self._append(append)
        except BaseException:
            self._failed = True  # its row has the event, the log not what follows from it
            raise
        finally:
            self._appended.set()
        if self._folding.changes >= CHANGES_MAX:
            await self.write_out()

    def _folded(self, partition: int, offset: int, recorded: Recorded) -> list[Append]:
        """Step 2: the appends that the event asks for."""
        key = self._folding.session_key(recorded.envelope.session_id)
        row = partial(self._rows.row, partition, key)
        now_us = wall_clock()
        return [*self._folding.take(partition, offset, recorded, row=row, now_us=now_us)]

    async def write_out(self) -> None:
        """Step 4.

        Raises:
            WorkerFailedError: an event was not taken in whole.
        """
        await self._appended.wait()
        if self._failed:
            raise WorkerFailedError("an event was not taken in whole")
        if not self.gave_up:
            for row in self._folding.changed():
                self._rows.set_row(*row)

    # --- step 3 ----------------------------------------------------------------------

    async def _append(self, append: Append) -> None:
        """Append, for as long as it takes: what stands still here is no lost loop."""
        while not self.gave_up:
            try:
                verdict = await self._asked(partial(appended, self._log, append))
            except LogUnavailableError as error:
                await self._wait("append", str(error))
                continue
            if verdict is not None:
                self.waits.pop("append", None)
                self._folding.answered(append, verdict)
                crash_point("CP_FLEET_AFTER_APPEND")
                return

    async def _asked(self, ask: Callable[[], Verdict]) -> Verdict | None:
        """An answer of the log; None if the process ends before it."""
        asked = asyncio.get_running_loop().run_in_executor(self._thread, ask)
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({asked, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        if not asked.done():
            await asyncio.wait({asked}, timeout=STOP_S)
        if asked.done():
            return await asked
        asked.add_done_callback(_forget)
        self.gave_up = True
        return None

    async def _wait(self, what: str, why: str) -> None:
        """Wait a while for what gives no answer; not if the process ends."""
        if what not in self.waits:
            _logger.warning("%s", why)
        self.waits[what] = why
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), RETRY_S)
            self.gave_up = True

    # --- other records ---------------------------------------------------------------

    def compare(self, message: Any) -> None:
        """A state that a worker published; its other records are nothing to compare."""
        key: bytes = message.key or b""
        if key == LOW_WATER_KEY or key.startswith(LOST_KEY) or not message.value:
            return
        session_id = key.decode(errors="replace")
        session = self._folding.session_key(session_id)
        row = partial(self._rows.row, message.partition, session)
        try:
            _, body = unframe(message.value)
            self._folding.compare(session_id, body, row=row)
        except DecodeError as error:
            self._skip(message, None, error)

    def _skip(self, message: Any, offset: int | None, why: DecodeError) -> None:
        where = f"{message.topic} [{message.partition}] offset {message.offset}"
        _logger.warning("%s is skipped: %s", where, why)
        self._folding.skipped(message.partition, offset)


def appended(log: Log, append: Append) -> Verdict:
    """What the log answers; a session that has gone on since gets it at its head.

    It is asked first whether it has the event: beyond its window admission cannot tell.
    """
    [verdict] = log.append([append])
    for _ in range(RENEWALS_MAX):
        if verdict.kind != TOO_OLD:
            break
        try:
            seq = _seq_of(log, append)
        except LogTruncatedError:
            break  # nobody can tell: it may be there
        if seq:
            return verdict.model_copy(update={"kind": DUPLICATE, "seq": seq})
        [verdict] = log.append([append._replace(known_seq=verdict.current_seq)])
    return verdict


def _seq_of(log: Log, append: Append) -> int:
    """The seq of the event in its session; 0 if it is not there."""
    events = log.structure(append.envelope.session_id, after_seq=append.known_seq)
    wanted = append.envelope.event_id
    return next((one.seq for one in events if one.envelope.event_id == wanted), 0)


def _forget(asked: "asyncio.Future[Verdict]") -> None:
    """Nobody waits for this answer any more, whatever it is."""
    if not asked.cancelled():
        asked.exception()


def _headers(message: Any) -> Headers:
    headers: dict[str, bytes] = dict(message.headers or {})
    return list(headers.items())
