"""What the records of a Claude Code transcript were called, as far as facts tell.

A fact's id is derived from its record's uuid, so a uuid that some fact names can be
proven. Where none is known the record is named after its first fact.
"""

from collections import Counter
from collections.abc import Iterator

from foldline.processors.anomalies import MISSING_PARENT_ID
from foldline.producers.claude_code_records import SYSTEM
from foldline.producers.claude_code_sessions import (
    BLOCKS,
    CONFIG,
    EXTRA,
    FAILED_CALL,
    MAIN,
    MESSAGE,
    PER_BLOCK,
    TURN_ENDED,
    TURN_STARTED,
)
from foldline.producers.identity import derived_id
from foldline.producers.source_groups import Group, Grouped
from foldline.schemas.events import (
    CompactionCompleted,
    ForeignRecord,
    ModelCallFailed,
    SteeringExpired,
    UserMessage,
)

UNSEEN_MAX = 8
"""How many records of the same bytes, and without uuid, may have told nothing between two
that did."""

SLOTS = (
    *(MAIN, MESSAGE, EXTRA, TURN_ENDED, TURN_STARTED, CONFIG),
    *(BLOCKS + PER_BLOCK * index for index in range(4)),
)
"""Where the first fact of a record may stand."""


class Names:
    """The uuid of each record, and of the record of each fact."""

    def __init__(self, grouped: Grouped) -> None:
        self._session_id = grouped.session_id
        self._occurred: Counter[str] = Counter()
        self._by_fact = {
            fact.envelope.event_id: index
            for index, group in enumerate(grouped.groups)
            for fact in group.facts
        }
        self._uuids: list[str] = [self._uuid_of(group) for group in grouped.groups]
        for group in grouped.groups:
            self._learn_parent(group)
        self._begin_branches(grouped.groups)

    def of(self, index: int) -> str:
        """The uuid of a record; empty where it has none."""
        return self._uuids[index]

    def of_fact(self, event_id: str) -> str | None:
        """The uuid of a fact's record; None where it is none of this session."""
        index = self._by_fact.get(event_id)
        return None if index is None else self._uuids[index]

    def proves(self, uuid: str, event_id: str) -> bool:
        """Whether a fact is one of the record with this uuid."""
        return any(
            derived_id(SYSTEM, self._session_id, uuid, str(slot)) == event_id
            for slot in SLOTS
        )

    # --- what is known ---------------------------------------------------------------

    def _uuid_of(self, group: Group) -> str:
        if not group.facts:
            return group.first.envelope.event_id
        event_id = group.facts[0].envelope.event_id
        named = next(_named(group), None)
        if named is not None:
            return "" if group.holds(named) else named
        if group.one(SteeringExpired):
            return ""  # only an operation of the queue tells it
        return "" if self._is_nameless(group, event_id) else event_id

    def _is_nameless(self, group: Group, event_id: str) -> bool:
        """Whether its facts are named after its bytes: it had no uuid, or not its own."""
        sha256 = group.sha256.hex()
        first = self._occurred[sha256]
        for count in range(first, first + UNSEEN_MAX):
            if self.proves(f"{sha256}:{count}", event_id):
                self._occurred[sha256] = count + 1
                return True
        return False

    def _learn_parent(self, group: Group) -> None:
        """A record that is kept as it is names its parent."""
        foreign = group.one(ForeignRecord)
        parent_id = group.first.envelope.parent_event_id
        if foreign is None or not foreign.parent_record_id or not parent_id:
            return
        index = self._by_fact.get(parent_id)
        if index is not None and self.proves(foreign.parent_record_id, parent_id):
            self._uuids[index] = foreign.parent_record_id

    def _begin_branches(self, groups: list[Group]) -> None:
        """A branch is named after its first record, if that was recorded."""
        for index, group in enumerate(groups):
            branch = group.first.envelope.branch
            if branch and self.proves(branch, group.first.envelope.event_id):
                self._uuids[index] = branch


def _named(group: Group) -> Iterator[str]:
    """The uuids that facts hold."""
    for event in group.events:
        match event:
            case UserMessage(message_id=uuid) | CompactionCompleted(compaction_id=uuid):
                yield uuid
            case ModelCallFailed(model_call_id=call) if call.startswith(FAILED_CALL):
                yield call.removeprefix(FAILED_CALL)
            case ForeignRecord(record_id=uuid):
                yield uuid or group.first.envelope.event_id
            case _:
                pass


def is_missing(event_id: str | None) -> bool:
    """Whether a fact's parent is known to be nowhere."""
    return event_id == MISSING_PARENT_ID
