"""The appends of one session that a client has under way: which to send, what counts.

A verdict answers one copy of an append, at its offset in `appends`. With resends, lost
records and lost verdicts, what a client may tell its caller follows from these rules:

1. At most `inflight_max` appends are sent and unanswered; the others wait, in order.
   An append whose event_id is under way already waits until that one is answered.
2. Without an answer for `resend_after_ms`, and with no copy of it on its way to the
   broker, it is sent again: the same record, with back-off and jitter. Where answers
   take longer than that, later: copies would make a worker that is behind slower still.
3. ACCEPTED and DUPLICATE are final at once: the event is in the log.
4. A refusal is final when no copy's acknowledgement is outstanding and it answers the
   last acknowledged copy: an earlier copy may have been refused, and a later one taken.
5. A refusal also has to be younger than the answer to every append before it. When a
   record is lost on its way and those after it are not, they are answered as if it had
   never been: what was refused then is asked again, behind it. (What was accepted then
   stays where it is; who depends on an earlier append says so in `requires`.)

Pure. Times come in as seconds of a monotonic clock, jitter as a number.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from foldline.processors.kafka_records import Outgoing
from foldline.schemas.verdicts import Verdict

RESEND_LONGEST_MS = 8_000
"""The longest pause between two copies of one append."""

JITTER = 0.25
"""The largest part by which a pause is shortened at random."""

PATIENCE = 3
"""After how many times the quickest of the last answers a copy is sent."""

LAST_ANSWERS = 8
"""How many answers say how quick they are now. One that is quick again says so at once:
what waited for a worker that had died says nothing of the one that took over."""

RETRY_MS = 100
"""How long a record that the broker did not take waits before it is sent again."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How many appends of a session are under way at once, and how often one is sent."""

    inflight_max: int
    resend_max: int
    resend_after_ms: int
    timeout_ms: int


@dataclass(slots=True, eq=False)
class Sending:
    """One append, its copies, and what is known of them. Offsets are in `appends`."""

    event_id: str
    record: Outgoing
    copies: int = 0
    unacknowledged: int = 0
    last_offset: int = -1
    """The offset of the last copy that was acknowledged."""
    verdict: Verdict | None = None
    answered: bool = False
    told: bool = False
    too_large: int = 0
    """How often the broker found a copy too large."""
    sent_at_s: float = 0.0
    """When the first copy was sent."""
    resend_at_s: float = 0.0
    deadline_s: float = field(default=float("inf"))
    trouble: str = ""
    """Why the last copy was not taken by the broker."""

    def is_due(self, now_s: float, limits: Limits) -> bool:
        """Whether another copy is to be sent now."""
        return (
            not self.answered
            and not self.unacknowledged
            and self.copies <= limits.resend_max
            and now_s >= self.resend_at_s
        )

    @property
    def decided_at(self) -> int:
        """The offset of the copy that was answered; -1 where none was."""
        return self.verdict.append_offset if self.verdict is not None else -1


class Pace:
    """How long a client waits for answers now; its lanes share one."""

    def __init__(self, limits: Limits) -> None:
        self._least_ms = limits.resend_after_ms
        self._took_s: deque[float] = deque(maxlen=LAST_ANSWERS)

    def answered(self, sending: Sending, now_s: float) -> None:
        """Take in when an append got its answer, counted from its first copy."""
        self._took_s.append(now_s - sending.sent_at_s)

    @property
    def resend_after_ms(self) -> int:
        """How long an append waits before its second copy."""
        quickest_s = min(self._took_s, default=0.0)
        return max(self._least_ms, int(quickest_s * PATIENCE * 1_000))


class Lane:
    """One session's appends, in their order."""

    def __init__(
        self, limits: Limits, *, chance: Callable[[], float], pace: Pace | None = None
    ) -> None:
        self._limits = limits
        self._chance = chance
        self._pace = pace or Pace(limits)
        self._waiting: deque[Sending] = deque()
        # Answered ones stay here until all before them are answered, too.
        self._under_way: list[Sending] = []
        self._floor = -1

    @property
    def empty(self) -> bool:
        """Whether nothing is under way, and nothing waits."""
        return not self._waiting and not self._under_way

    def add(self, sending: Sending) -> None:
        """One more append behind the others."""
        self._waiting.append(sending)

    def withdraw(self, unwanted: set[Sending]) -> None:
        """Nobody waits for these any longer."""
        self._waiting = deque(s for s in self._waiting if s not in unwanted)
        self._under_way = [s for s in self._under_way if s not in unwanted]

    def due(self, now_s: float) -> list[Sending]:
        """What is to be sent now, in this order; `sent` says that it was."""
        due = [s for s in self._under_way if s.is_due(now_s, self._limits)]
        unanswered = {s.event_id for s in self._under_way if not s.answered}
        while self._waiting and len(unanswered) < self._limits.inflight_max:
            sending = self._waiting[0]
            if sending.event_id in unanswered:
                break
            unanswered.add(sending.event_id)
            self._under_way.append(self._waiting.popleft())
            sending.deadline_s = now_s + self._limits.timeout_ms / 1000
            due.append(sending)
        return due

    def sent(self, sending: Sending, now_s: float) -> None:
        """A copy is on its way to the broker."""
        pause_ms = min(self._pace.resend_after_ms << sending.copies, RESEND_LONGEST_MS)
        pause_ms *= 1 - JITTER * self._chance()
        sending.sent_at_s = sending.sent_at_s if sending.copies else now_s
        sending.copies += 1
        sending.unacknowledged += 1
        sending.resend_at_s = now_s + pause_ms / 1000

    def acknowledged(self, sending: Sending, offset: int) -> None:
        """A copy stands at this offset, on every in-sync replica."""
        sending.unacknowledged -= 1
        sending.trouble = ""
        sending.last_offset = max(sending.last_offset, offset)

    def lost(self, sending: Sending, reason: str, now_s: float) -> None:
        """The broker did not take a copy, as far as the client knows."""
        sending.unacknowledged -= 1
        sending.trouble = reason
        sending.resend_at_s = now_s + RETRY_MS / 1000

    def heard(self, verdict: Verdict) -> None:
        """A verdict on one copy of an append under way; on another it is ignored."""
        for sending in self._under_way:
            if sending.event_id == verdict.event_id and not sending.answered:
                self._keep(sending, verdict)
                return

    def _keep(self, sending: Sending, verdict: Verdict) -> None:
        if verdict.recorded:
            sending.verdict = verdict
            sending.answered = True
        elif verdict.append_offset > sending.decided_at:
            sending.verdict = verdict

    def answer(self, sending: Sending, verdict: Verdict) -> None:
        """An answer that is known without a worker's."""
        sending.verdict = verdict
        sending.answered = True

    def settle(self) -> list[Sending]:
        """Those whose answers have become final since the last time.

        Refusals that came too early are asked again: they are due at once.
        """
        floor, all_answered = self._floor, True
        for sending in self._under_way:
            if all_answered and not sending.answered:
                self._judge(sending, floor)
            all_answered = all_answered and sending.answered
            floor = max(floor, sending.decided_at)
        final = [s for s in self._under_way if s.answered and not s.told]
        for sending in final:
            sending.told = True
        while self._under_way and self._under_way[0].answered:
            self._floor = max(self._floor, self._under_way.pop(0).decided_at)
        return final

    def _judge(self, sending: Sending, floor: int) -> None:
        refusal = sending.verdict
        if refusal is None or sending.unacknowledged:
            return
        if refusal.append_offset < sending.last_offset:
            return  # the last copy's answer is still to come
        if refusal.append_offset > floor:
            sending.answered = True
            return
        sending.verdict = None
        sending.resend_at_s = 0.0

    def expired(self, now_s: float) -> Sending | None:
        """The first append that has waited for its answer for too long."""
        for sending in self._under_way:
            if not sending.answered and now_s >= sending.deadline_s:
                return sending
        return None
