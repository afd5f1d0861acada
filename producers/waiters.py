"""Who waits for the answer to which request, in one run of tools.

Answers come from the log, as everybody sees them; one that comes before somebody listens
is kept for them.
"""

import asyncio

from foldline.schemas.events import PermissionDenied, PermissionGranted
from foldline.schemas.recorded import Recorded

COVERED = "COVERED"
"""Another request's grant reaches further than its call: look whether it covers this."""

Answer = Recorded | str | None
"""The answer; COVERED; None where the run was interrupted, or the call is to stop."""


class Waiters:
    """The waiters of one run. Used in the event loop alone."""

    def __init__(self) -> None:
        self._asked: dict[str, asyncio.Future[Answer]] = {}
        self._answers: dict[str, Recorded] = {}
        self._requests: dict[str, str] = {}
        self._stopped: set[str] = set()
        self._interrupted = False
        self.reach_seq = 0
        """The seq of the last grant that reaches further than its call; 0 for none."""

    def listen(self, request_id: str, *, call_id: str) -> asyncio.Future[Answer]:
        """Listen for the answer to a call's request: from here on none is missed."""
        future = self._asked.get(request_id)
        if future is None:
            future = asyncio.get_running_loop().create_future()
            self._asked[request_id] = future
            self._requests[call_id] = request_id
        if self._interrupted or call_id in self._stopped:
            _hand(future, None)
        return future

    async def answer_to(self, request_id: str, *, call_id: str, wait_s: float) -> Answer:
        """Wait for the answer to a call's request.

        Raises:
            TimeoutError: none came in time.
        """
        answered = self.listen(request_id, call_id=call_id)
        early = self._answers.get(request_id)
        try:
            async with asyncio.timeout(wait_s):
                return early or await answered
        finally:
            self._asked.pop(request_id, None)

    def noticed(self, recorded: Recorded) -> None:
        """Hand an answer to whoever waits for it; others may be covered by it too."""
        event = recorded.event
        if not isinstance(event, (PermissionGranted, PermissionDenied)):
            return
        request_id = event.request_id or ""
        self._answers[request_id] = recorded
        _hand(self._asked.get(request_id), recorded)
        if isinstance(event, PermissionGranted) and event.scope != "CALL":
            self.reach_seq = recorded.seq
            for other, future in self._asked.items():
                if other != request_id:
                    _hand(future, COVERED)

    def stop(self, call_id: str) -> None:
        """Let go of a call that waits, or will wait."""
        self._stopped.add(call_id)
        _hand(self._asked.get(self._requests.get(call_id, "")), None)

    def interrupt(self) -> None:
        """Let go of whoever waits, or will wait."""
        self._interrupted = True
        for future in self._asked.values():
            _hand(future, None)

    def cancel(self) -> None:
        """The run itself was cancelled."""
        for future in self._asked.values():
            future.cancel()


def _hand(future: "asyncio.Future[Answer] | None", answer: Answer) -> None:
    if future is not None and not future.done():
        future.set_result(answer)
