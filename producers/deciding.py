"""The plain verbs of a session's owner: what only it may record, and what anybody may."""

from collections.abc import Sequence

from foldline.errors import FoldlineError
from foldline.producers.appender import raise_refused
from foldline.producers.calls import pending_call
from foldline.producers.ending import expire_steering
from foldline.producers.ownership import Ownership
from foldline.producers.prepare import Said, blocks_of
from foldline.producers.tools import PendingCall, Toolbox
from foldline.producers.viewing import Viewing
from foldline.schemas.authority import authority_of
from foldline.schemas.choices import BackgroundOutcome
from foldline.schemas.events import (
    BackgroundEnded,
    CheckpointCreated,
    InstructionsSet,
    KnownEvent,
    ToolsDeclared,
)
from foldline.schemas.snapshots import state_hash
from foldline.schemas.state import FOLD_VERSION
from foldline.schemas.verdicts import CONFLICT, Verdict

CHECKPOINT_TRIES_MAX = 16
"""How often a checkpoint is made anew because somebody appended in between."""


class Deciding(Viewing):
    """The part of `OwnedSession` that needs no other session: its plain verbs."""

    _owner: Ownership

    @property
    def epoch(self) -> int:
        """The epoch in which this client owns the session."""
        return self._owner.epoch

    @property
    def problems(self) -> list[FoldlineError]:
        """What went wrong while recording late outcomes, where nobody waited for it."""
        return self._owner.problems

    async def append(
        self,
        event: KnownEvent,
        *,
        expected_seq: int | None = None,
        requires: tuple[str, ...] = (),
        event_id: str | None = None,
    ) -> Verdict:
        """Record one event: as the owner where only the owner may, else as anybody."""
        if authority_of(event) == "external":
            return await super().append(
                event, expected_seq=expected_seq, requires=requires, event_id=event_id
            )
        turn_id = await self._open_turn_id()
        draft = self._owner.draft(
            event,
            turn_id=turn_id,
            event_id=event_id,
            expected_seq=expected_seq,
            requires=requires,
        )
        return (await self._owner.decide([draft]))[0].verdict

    async def append_all(self, events: Sequence[KnownEvent]) -> list[Verdict]:
        """Record several events of the owner in one batch."""
        turn_id = await self._open_turn_id()
        drafts = [self._owner.draft(event, turn_id=turn_id) for event in events]
        return [sent.verdict for sent in await self._owner.decide(drafts)]

    async def declare(self, toolbox: Toolbox) -> Verdict:
        """Say which tools are in force from here on."""
        return await self.append(ToolsDeclared(tools=toolbox.declarations()))

    async def instruct(self, said: Said, *, role: str = "system") -> Verdict:
        """Say which instructions are in force from here on, in a role."""
        return await self.append(InstructionsSet(role=role, blocks=blocks_of(said)))

    async def background_ended(
        self, handle: str, outcome: BackgroundOutcome, output: Said = ()
    ) -> Verdict:
        """Tell how something ended that went on in the background."""
        event = BackgroundEnded(handle=handle, outcome=outcome, output=blocks_of(output))
        return await self.append(event)

    async def checkpoint(self) -> Verdict:
        """Ask the log to keep the state as it is now; `verify` checks its hash."""
        tries_left = CHECKPOINT_TRIES_MAX
        while True:
            state = await self._owner.state()
            event = CheckpointCreated(
                upto_seq=state.seq,
                state_hash=state_hash(state),
                fold_version=FOLD_VERSION,
            )
            answers = await self._owner.attempt(
                [self._owner.draft(event, expected_seq=state.seq)]
            )
            tries_left -= 1
            if answers[0].verdict.kind != CONFLICT or not tries_left:
                raise_refused(answers)
                return answers[0].verdict

    async def expire_steering(self, reason: str) -> None:
        """Say of all steering that is pending that it will not be applied, and why."""
        await expire_steering(self._owner, reason)

    async def unfinished_calls(self) -> list[PendingCall]:
        """Every call without an end, those included that began or whose outcome is unknown.

        `Turn.open_calls` gives those of them that have still to run.
        """
        state = await self._owner.state()
        listed = sorted(state.calls.values(), key=lambda call: call.requested_seq)
        return [await pending_call(self._owner, call) for call in listed]

    async def _open_turn_id(self) -> str | None:
        state = await self._owner.state()
        return state.turn.turn_id if state.turn else None
