"""Claude Code's records, made again from the facts of a mirrored session.

The inverse of `claude_code_mapping`: the facts of one record give one record, in order.
What the import left out (noise, copies) is not there; where the chain of parents goes
through such a record, a stub without content stands for it.
"""

from collections.abc import Iterator

from foldline.producers.claude_code_export_harness import (
    TELLING,
    harness_record,
    leaves_queue,
    queue_operation,
)
from foldline.producers.claude_code_export_messages import assistant_record, user_record
from foldline.producers.claude_code_mapping import AGENT_SESSION
from foldline.producers.claude_code_names import Names, is_missing
from foldline.producers.claude_code_records import SYSTEM
from foldline.producers.claude_code_told import Told
from foldline.producers.identity import derived_id
from foldline.producers.json_fields import Json, as_object, as_text
from foldline.producers.source_bodies import Bodies, UnbuildableError, parsed
from foldline.producers.source_groups import RESULTS, Group, Grouped
from foldline.producers.source_lines import Line, iso_of, line_of, verbatim
from foldline.schemas.events import AssistantMessage, ConfigChanged, ForeignRecord

REPEATED = {"version": "version", "git_branch": "gitBranch"}
"""What every record repeats of the environment, and its name there."""


def records(grouped: Grouped, bodies: Bodies) -> Iterator[Line]:
    """The lines of a transcript that tells a session."""
    return _Export(grouped, bodies).lines()


class _Export:
    def __init__(self, grouped: Grouped, bodies: Bodies) -> None:
        self._grouped = grouped
        created = grouped.created
        environment = (created and created.environment_json) or "{}"
        self._environment = as_object(parsed(environment))
        cwd = as_text(self._environment.get("cwd"))
        self._told = Told(Names(grouped), bodies, cwd=cwd)
        self._stubs: set[str] = set()

    def lines(self) -> Iterator[Line]:
        """One line for each record, and stubs between them."""
        for index, group in enumerate(self._grouped.groups):
            foreign = group.one(ForeignRecord)
            if foreign is None:
                yield from self._branch_root(index, group)
                yield from self._built(index, group)
            else:
                yield from self._noise_before(group, foreign)
                yield verbatim(index, self._told.bodies.raw(foreign.blocks[0]))

    def _built(self, index: int, group: Group) -> Iterator[Line]:
        self._note_config(group)
        try:
            bare = self._bare(index, group)
            record = bare or self._framed(index, group)
        except UnbuildableError:
            yield Line(index, None)
            return
        yield line_of(index, record)
        if record.get("operation") == "enqueue" and leaves_queue(group):
            operation = {"type": "queue-operation", "operation": "remove"}
            yield line_of(None, operation | self._when(group) | self._session())

    def _note_config(self, group: Group) -> None:
        """Configuration changes with the record that shows it."""
        config, told = group.one(ConfigChanged), self._told
        if config is not None:
            told.cwd = config.cwd or told.cwd
            told.model = config.model or told.model
            told.permission_mode = config.permission_mode or told.permission_mode

    # --- records ---------------------------------------------------------------------

    def _bare(self, index: int, group: Group) -> Json | None:
        """A record of the queue, or of the mode: they have no uuid and no parent."""
        told = self._told
        if group.are(ConfigChanged):
            kind, said = "permission-mode", told.mode
        elif told.names.of(index):
            return None
        else:
            kind, said = "queue-operation", queue_operation(told, group)
        if said is None:
            return None
        first = self._cwd() | self._environment_of(group) if group.created else {}
        return {"type": kind} | said | self._when(group) | self._session() | first

    def _framed(self, index: int, group: Group) -> Json:
        """A record of the conversation, which has a uuid and a parent.

        Raises:
            UnbuildableError: none says what its facts say.
        """
        uuid = self._told.names.of(index)
        said = self._said(group, uuid)
        record = self._frame(group) | said | ({"uuid": uuid} if uuid else {})
        if said.get("subtype") == "compact_boundary":
            record["logicalParentUuid"], record["parentUuid"] = record["parentUuid"], None
        return record | self._when(group)

    def _said(self, group: Group, uuid: str) -> Json:
        message = group.one(AssistantMessage)
        if message is not None:
            return assistant_record(self._told, group, message, uuid)
        if not group.facts:
            raise UnbuildableError
        if not isinstance(group.events[0], RESULTS):
            telling = (group.one(kind) for kind in TELLING)
            event = next((one for one in telling if one is not None), None)
            if event is not None:
                return harness_record(self._told, group, event)
        return user_record(self._told, group)

    # --- what they stand in ----------------------------------------------------------

    def _frame(self, group: Group) -> Json:
        envelope = group.first.envelope
        frame: Json = {
            "parentUuid": self._parent(group),
            "isSidechain": envelope.branch is not None or bool(self._agent()),
            "userType": "external",
        }
        frame |= self._cwd() | self._session() | self._environment_of(group)
        if group.created and self._continues():
            frame["forkedFrom"] = {"sessionId": self._continues()}
        return frame

    def _continues(self) -> str:
        """The session that this one goes on from, or an empty string."""
        created = self._grouped.created
        if created is None or created.relation != "CONTINUATION":
            return ""
        return created.parent_session_id or ""

    def _parent(self, group: Group) -> str | None:
        """The uuid of the record before; one that is nowhere keeps a name of its own."""
        envelope = group.first.envelope
        event_id = envelope.parent_event_id
        if event_id is None:
            return envelope.branch if envelope.branch in self._stubs else None
        if is_missing(event_id):
            return derived_id(SYSTEM, "missing", envelope.event_id)
        known = self._told.names.of_fact(event_id)
        return event_id if known is None else known or None

    def _cwd(self) -> Json:
        return {"cwd": self._told.cwd} if self._told.cwd else {}

    def _agent(self) -> str:
        """The subagent whose session it is, or an empty string."""
        own = self._grouped.session_id.rpartition("/")[2]
        return own.removeprefix(AGENT_SESSION) if own.startswith(AGENT_SESSION) else ""

    def _session(self) -> Json:
        session_id, agent = self._grouped.session_id, self._agent()
        if not agent:
            return {"sessionId": session_id}
        created = self._grouped.created
        parent = created.parent_session_id if created else None
        return {"sessionId": parent or session_id, "agentId": agent}

    def _environment_of(self, group: Group) -> Json:
        """Version and branch; and with the first record how the harness was begun."""
        held = self._environment
        told = {name: held[own] for own, name in REPEATED.items() if own in held}
        if group.created is not None and "entrypoint" in held:
            told["entrypoint"] = held["entrypoint"]
        return told

    def _when(self, group: Group) -> Json:
        said = iso_of(group.first.envelope.occurred_at)
        return {} if said is None else {"timestamp": said}

    # --- stubs -----------------------------------------------------------------------

    def _noise_before(self, group: Group, foreign: ForeignRecord) -> Iterator[Line]:
        """A stub for the parent that a record names and that was not recorded."""
        parent, event_id = foreign.parent_record_id, group.first.envelope.parent_event_id
        if not parent or is_missing(event_id):
            return
        known = None if event_id is None else self._told.names.of_fact(event_id)
        if parent == known:
            return
        if event_id is None or known is not None:
            yield from self._stub(group, parent, known)
        elif group.created is not None and self._continues():
            yield from self._stub(group, parent, None, session=self._continues())

    def _branch_root(self, index: int, group: Group) -> Iterator[Line]:
        """A stub for the first record of a branch, where that was not recorded."""
        envelope = group.first.envelope
        branch = envelope.branch
        named_after_it = self._told.names.of(index) == branch
        if branch and envelope.parent_event_id is None and not named_after_it:
            yield from self._stub(group, branch, None)

    def _stub(
        self, group: Group, uuid: str, parent: str | None, *, session: str = ""
    ) -> Iterator[Line]:
        """A record that says nothing: noise, to whoever imports it."""
        if uuid in self._stubs:
            return
        self._stubs.add(uuid)
        frame = self._frame(group) | {"parentUuid": parent or None, "type": "progress"}
        stub: Json = {"data": {"type": "hook_progress"}, "uuid": uuid}
        stub |= {"sessionId": session} if session else {}
        yield line_of(None, frame | stub | self._when(group))
