"""The tree below a session: its forks and subagents, and what each of them used.

Usage is charged once: a session's is that of its own events, so a fork's history, which
it shares with its ancestors, is counted where it happened. The whole is the sum.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, fields

from foldline.errors import SessionNotFoundError
from foldline.processors.stored import AuditableLog, StoredSession
from foldline.schemas.state import SessionState, UsageTotals

NODES_MAX = 10_000
"""How many sessions one tree shows; those beyond are counted."""


@dataclass(slots=True)
class Node:
    """A session in the tree, with its own usage. `depth` is 0 for the first."""

    session_id: str
    relation: str
    parent_session_id: str
    fork_seq: int
    agent: str
    status: str
    seq: int
    depth: int
    usage: UsageTotals


@dataclass(slots=True)
class Tree:
    """The sessions below one, each behind its parent; `usage` is that of all of them."""

    nodes: list[Node] = field(default_factory=list[Node])
    left_out: int = 0
    usage: UsageTotals = field(default_factory=UsageTotals)


def tree_of(log: AuditableLog, session_id: str) -> Tree:
    """The tree below a session of a log, the oldest child first.

    Raises:
        SessionNotFoundError: no such session.
    """
    head = log.state(session_id)
    if head is None:
        raise SessionNotFoundError(session_id, log.url)
    tree = Tree()
    for row_id, depth in _walk(_children_of(log, head.tenant), session_id):
        if len(tree.nodes) >= NODES_MAX:
            tree.left_out += 1
            continue
        state = log.state(row_id)
        if state is not None:
            tree.nodes.append(_node(state, depth))
            _add(tree.usage, state.usage)
    return tree


def _children_of(log: AuditableLog, tenant: str) -> dict[str, list[StoredSession]]:
    """The index of sessions by their parents: it is read once, and no event is."""
    found: defaultdict[str, list[StoredSession]] = defaultdict(list)
    for row in log.stored_sessions():
        if row.parent_session_id and row.tenant == tenant:
            found[row.parent_session_id].append(row)
    return found


def _walk(
    children: dict[str, list[StoredSession]], session_id: str
) -> Iterator[tuple[str, int]]:
    """Each session below one, once, and how deep: a parent before its children.

    Writers name parents; two that name each other come once all the same.
    """
    seen = {session_id}
    open_nodes = [(session_id, 0)]
    while open_nodes:
        name, depth = open_nodes.pop()
        yield name, depth
        below = [row for row in children.get(name, ()) if row.session_id not in seen]
        below.sort(key=lambda row: (row.created_at, row.session_id), reverse=True)
        seen.update(row.session_id for row in below)
        open_nodes.extend((row.session_id, depth + 1) for row in below)


def _node(state: SessionState, depth: int) -> Node:
    return Node(
        session_id=state.session_id,
        relation=state.relation,
        parent_session_id=state.parent_session_id,
        fork_seq=state.fork_seq,
        agent=state.agent,
        status=state.status,
        seq=state.seq,
        depth=depth,
        usage=state.usage,
    )


def _add(total: UsageTotals, usage: UsageTotals) -> None:
    for each in fields(UsageTotals):
        setattr(total, each.name, getattr(total, each.name) + getattr(usage, each.name))
