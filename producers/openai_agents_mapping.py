"""What becomes of each part of a run state or an item list, one after another."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator

from foldline.producers.identity import derived_id
from foldline.producers.importing import ImportReport, Piece
from foldline.producers.json_fields import (
    ID_MAX,
    Json,
    as_id,
    as_json,
    as_list,
    as_object,
    as_session_id,
    as_text,
)
from foldline.producers.mirror import Mirror
from foldline.producers.openai_agents_approvals import Decision, decide, decisions_of
from foldline.producers.openai_agents_state import (
    SYSTEM,
    Entry,
    entries_of,
    field_of,
    nested_state,
    session_of,
    usage_of,
)
from foldline.producers.openai_blocks import content_blocks
from foldline.producers.openai_facts import (
    EXTRA,
    FOREIGN,
    MAIN,
    MAPPED,
    RESULT,
    Counts,
    ModelCall,
    Scribe,
    Thread,
)
from foldline.producers.openai_items import call_id_of, count_item, map_item
from foldline.producers.prepare import Draft
from foldline.schemas.blocks import json_block
from foldline.schemas.envelope import INFERRED, Envelope, Source
from foldline.schemas.events import (
    ForeignRecord,
    HandedOff,
    ModelCallCompleted,
    PermissionRequested,
    SessionCreated,
    SubagentStarted,
    ToolResultProjected,
)

OF_THE_STATE = "#state"
"""Ends the source of facts that a later state of the same run no longer holds: what waits
now, and where the run stands. That they are gone then is no loss."""

NESTED_MAX = 8
"""How deep runs that wait for runs are followed; deeper ones are kept as they are."""


def pieces_of(document: Json | list[object]) -> Iterator[Piece]:
    """The parts of a document as an importer takes them."""
    for number, entry in enumerate(entries_of(document)):
        raw = as_json(entry.value)
        data = raw.encode("utf-8", "surrogatepass")
        record = {"place": entry.place, "kind": entry.kind, "value": entry.value}
        yield Piece(number, 0, hashlib.sha256(data).digest(), raw, record)


class Mapping:
    """Takes the parts of one run, in order, and gives their facts to a mirror."""

    def __init__(
        self,
        mirror: Mirror,
        report: ImportReport,
        *,
        stream: str,
        document: Json | list[object],
        counts: Counts | None = None,
        called_by: tuple[str, str, str | None] | None = None,
        depth: int = 0,
    ) -> None:
        """Begin a run.

        Args:
            mirror: takes the facts.
            report: says what became of the parts.
            stream: names the source.
            document: the run.
            counts: of the run that waits for this one, to go on with.
            called_by: the session that waits, the name of this one, and the call.
            depth: how many runs wait for this one.
        """
        self._mirror = mirror
        self._report = report
        self._stream = stream
        self._document = document
        self._counts = counts or Counts()
        self._called_by = called_by
        self._depth = depth
        session_id = called_by[1] if called_by else session_of(document)
        self._thread = Thread(SYSTEM, session_id, child=called_by is not None)
        self._occurred: Counter[str] = Counter()
        self._decided = decisions_of(document)

    def take(self, piece: Piece) -> None:
        """Take the next part."""
        record = piece.record or {}
        entry = Entry(record["place"], record["kind"], record["value"])
        self._report.records += 1
        scribe = self._scribe(piece, entry)
        try:
            became, label = self._became(scribe, entry)
        except RecursionError:
            scribe.facts.clear()
            became, label = FOREIGN, entry.kind
        if became == MAPPED:
            self._report.mapped += 1
        else:
            self._report.foreign[label] += 1
            _keep(scribe, label, piece.raw)
        self._put(scribe)
        if entry.kind == "nested" and became == MAPPED:
            self._follow(entry)

    def close(self) -> None:
        """Write the counts of the whole run into the report."""
        self._counts.write_into(self._report)

    # --- what becomes of it ----------------------------------------------------------

    def _became(self, scribe: Scribe, entry: Entry) -> tuple[str, str]:
        """What a part became, and what it is called if it is kept as it is."""
        value = entry.value
        match entry.kind:
            case "item":
                count_item(self._counts, value)
                return self._item(scribe, value), as_text(value.get("type")) or "item"
            case "run_item":
                label = as_text(value.get("type")) or "run_item"
                return self._run_item(scribe, value), label[:ID_MAX]
            case "covered":
                return MAPPED, ""
            case "response":
                self._response(scribe, value)
                return MAPPED, ""
            case "nested":
                return self._nested(scribe, value), "pending_run"
            case _:
                return FOREIGN, "run_state"

    def _item(self, scribe: Scribe, item: Json) -> str:
        """An item; where a person decided about its call, the decision first."""
        decided = self._decided.pop(call_id_of(item), None)
        if decided is None or not as_text(item.get("type")).endswith(("output", "result")):
            if decided is not None:
                self._decided[call_id_of(item)] = decided
            return map_item(scribe, item)
        return self._decided_output(scribe, item, decided)

    def _decided_output(self, scribe: Scribe, item: Json, decided: Decision) -> str:
        call_id = self._thread.calls.get(call_id_of(item))
        if call_id is None:
            return map_item(scribe, item)
        decide(scribe, call_id, decided)
        if decided.approved:
            return map_item(scribe, item)
        self._thread.pause()
        self._thread.close_call(call_id_of(item))
        shown = ToolResultProjected(
            call_id=call_id, form="denied", blocks=content_blocks(item.get("output"))
        )
        scribe.write(RESULT, shown, self._thread.harness)
        return MAPPED

    def _run_item(self, scribe: Scribe, run_item: Json) -> str:
        raw = as_object(field_of(run_item, "raw_item"))
        kind = as_text(run_item.get("type"))
        if kind == "tool_approval_item":
            return self._waits(scribe, raw)
        count_item(self._counts, raw)
        became = self._item(scribe, raw)
        if kind == "handoff_output_item" and became == MAPPED:
            self._handed_off(scribe, run_item, raw)
        return became

    def _waits(self, scribe: Scribe, raw: Json) -> str:
        """A call waits for permission; of a nested run's call the run itself tells."""
        provider_call_id = call_id_of(raw)
        call_id = self._thread.calls.get(provider_call_id)
        if call_id is None:
            return FOREIGN
        request = PermissionRequested(
            request_id=f"approval:{call_id}",
            call_id=call_id,
            display=(json_block(as_json(raw)),),
        )
        scribe.source = _of_the_state(scribe.source)
        scribe.write(MAIN, request, self._thread.harness)
        return MAPPED

    def _handed_off(self, scribe: Scribe, run_item: Json, raw: Json) -> None:
        agents = [
            as_id(as_object(field_of(run_item, name)).get("name"))
            for name in ("source_agent", "target_agent")
        ]
        if all(agents):
            call_id = self._thread.calls.get(call_id_of(raw))
            event = HandedOff(from_agent=agents[0], to_agent=agents[1], call_id=call_id)
            scribe.write(EXTRA, event, self._thread.harness)

    def _response(self, scribe: Scribe, response: Json) -> None:
        """An answer of the model: what it used, and all that it said."""
        thread = self._thread
        response_id = as_id(field_of(response, "response_id"))
        call = ModelCall(response_id or scribe.event_id(MAIN), used=True)
        thread.call = call
        event = ModelCallCompleted(
            model_call_id=call.call_id,
            response_id=response_id or None,
            usage=usage_of(as_object(response.get("usage"))),
        )
        scribe.write(MAIN, event, thread.agent)
        for at, output in enumerate(as_list(response.get("output"))):
            item = as_object(output)
            count_item(self._counts, item)
            part = Scribe(thread, f"{scribe.key}/{at}", scribe.source)
            if map_item(part, item) == FOREIGN:
                label = as_text(item.get("type")) or "output"
                _keep(part, label[:ID_MAX], as_json(item))
            scribe.facts.extend(part.facts)
        thread.pause()

    # --- runs within the run ---------------------------------------------------------

    def _nested(self, scribe: Scribe, value: Json) -> str:
        """A run that a call waits for is a session of its own."""
        if nested_state(value) is None or self._depth >= NESTED_MAX:
            return FOREIGN
        _, child, call_id = self._child_of(value)
        event = SubagentStarted(child_session_id=child, call_id=call_id)
        scribe.source = _of_the_state(scribe.source)
        scribe.write(MAIN, event, self._thread.harness)
        return MAPPED

    def _follow(self, entry: Entry) -> None:
        state = nested_state(entry.value)
        if state is None:
            return
        run = Mapping(
            self._mirror,
            self._report,
            stream=self._stream,
            document=state,
            counts=self._counts,
            called_by=self._child_of(entry.value),
            depth=self._depth + 1,
        )
        for piece in pieces_of(state):
            run.take(piece)

    def _child_of(self, value: Json) -> tuple[str, str, str | None]:
        session_id = self._thread.session_id
        provider_call_id = as_text(value.get("name")).rpartition(":")[2]
        call_id = self._thread.calls.get(provider_call_id)
        child = f"{session_id}/{provider_call_id}"[-ID_MAX:]
        if not as_session_id(child):
            child = derived_id(SYSTEM, session_id, provider_call_id)
        return session_id, child, call_id

    # --- writing ---------------------------------------------------------------------

    def _scribe(self, piece: Piece, entry: Entry) -> Scribe:
        said = json.dumps([entry.kind, entry.value], sort_keys=True).encode()
        digest = hashlib.blake2b(said, digest_size=16).hexdigest()
        key = f"{digest}:{self._occurred[digest]}"
        self._occurred[digest] += 1
        source = Source(
            system=SYSTEM, stream=self._stream, position=entry.place, sha256=piece.sha256
        )
        return Scribe(
            self._thread, key, _of_the_state(source) if entry.kind == "rest" else source
        )

    def _put(self, scribe: Scribe) -> None:
        """Give the facts to the mirror, the session's creation before the first."""
        if not scribe.facts:
            return
        if not self._thread.created:
            self._thread.created = True
            self._mirror.put(self._creation(scribe))
        for fact in scribe.facts:
            self._mirror.put(fact)

    def _creation(self, scribe: Scribe) -> Draft:
        session_id = self._thread.session_id
        parent, _, call_id = self._called_by or (None, "", None)
        event = SessionCreated(
            agent=SYSTEM,
            mode="MIRRORED",
            relation="SUBAGENT" if parent else "ROOT",
            parent_session_id=parent,
            parent_call_id=call_id,
        )
        envelope = Envelope(
            event_id=derived_id(SYSTEM, session_id, "session"),
            session_id=session_id,
            writer=f"import:{SYSTEM}",
            actor=self._thread.harness,
            certainty=INFERRED,
            source=scribe.source,
        )
        return Draft(envelope, event)


def _of_the_state(source: Source) -> Source:
    if source.stream.endswith(OF_THE_STATE):
        return source
    return source.model_copy(update={"stream": source.stream + OF_THE_STATE})


def _keep(scribe: Scribe, record_type: str, raw: str) -> None:
    """Keep what cannot be mapped as it is, in its place."""
    event = ForeignRecord(system=SYSTEM, record_type=record_type, blocks=(json_block(raw),))
    scribe.write(MAIN, event, scribe.thread.harness)
