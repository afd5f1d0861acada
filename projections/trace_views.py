"""Spans for machines and for eyes: one JSON object each, or the tree that they are."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from foldline.projections.spans import Span
from foldline.projections.views import iso_time, plain


def span_view(span: Span) -> dict[str, Any]:
    """A span for machines. `parent_id` is null for a root; times are ISO 8601 UTC."""
    return {
        "name": span.name,
        "trace_id": span.ref.trace_id,
        "span_id": span.ref.span_id,
        "parent_id": span.parent_id or None,
        "kind": span.kind,
        "start": iso_time(span.start_us),
        "end": iso_time(span.end_us),
        "start_us": span.start_us,
        "end_us": span.end_us,
        "status": span.status,
        "attributes": {name: plain(value) for name, value in span.attributes.items()},
        "events": [
            {
                "name": event.name,
                "time": iso_time(event.time_us),
                "attributes": {k: plain(v) for k, v in event.attributes.items()},
            }
            for event in span.events
        ],
        "links": [
            {"trace_id": link.to.trace_id, "span_id": link.to.span_id, "kind": link.kind}
            for link in span.links
        ],
    }


def tree_rows(spans: Sequence[Span]) -> Iterator[tuple[int, Span]]:
    """Each span behind its parent, by its start, and how deep it is.

    One whose parent is in another session's trace stands at the top.
    """
    known = {span.ref.span_id for span in spans}
    below: defaultdict[str, list[Span]] = defaultdict(list)
    for span in spans:
        below[span.parent_id if span.parent_id in known else ""].append(span)
    rows = [(0, span) for span in reversed(_by_start(below[""]))]
    while rows:
        depth, span = rows.pop()
        yield depth, span
        children = reversed(_by_start(below[span.ref.span_id]))
        rows.extend((depth + 1, child) for child in children)


def _by_start(spans: list[Span]) -> list[Span]:
    return sorted(spans, key=lambda span: span.start_us)
