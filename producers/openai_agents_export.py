"""A list of items, made again from the facts of a mirrored session of the Agents SDK.

It is what `to_input_list()` gives. A run state says more (answers, approvals, where the
run stands), and has no way back.
"""

from collections.abc import Iterator

from foldline.errors import ExportRefusedError
from foldline.producers.openai_items_rebuilt import Items
from foldline.producers.source_bodies import Bodies, UnbuildableError
from foldline.producers.source_groups import Grouped
from foldline.producers.source_lines import Line, line_of, verbatim
from foldline.schemas.events import ForeignRecord


def items(grouped: Grouped, bodies: Bodies) -> Iterator[Line]:
    """The items of a session, one a line.

    Raises:
        ExportRefusedError: it was read from a run state.
    """
    made = Items(bodies)
    for index, group in enumerate(grouped.groups):
        source = group.first.envelope.source
        if source is None or not source.position.isdecimal():
            reason = "it was read from a run state, and only lists of items have a way back"
            raise ExportRefusedError(grouped.session_id, grouped.system, reason)
        foreign = group.one(ForeignRecord)
        if foreign is not None:
            yield verbatim(index, bodies.raw(foreign.blocks[0]))
            continue
        try:
            yield line_of(index, made.of(group))
        except UnbuildableError:
            yield Line(index, None)
