"""Which children a session has: writers name them, and may name each other."""

from foldline.projections.subagents import children_unseen
from foldline.schemas.state import SessionState, Subagent


def _naming(session_id: str, *children: str) -> SessionState:
    state = SessionState(session_id)
    for seq, name in enumerate(children, start=2):
        state.subagents[name] = Subagent(name, f"call {seq}", seq)
    return state


def test_each_child_comes_once_in_the_order_in_which_it_began() -> None:
    seen = {"a"}
    assert children_unseen(_naming("a", "b", "c"), seen) == ["b", "c"]
    assert children_unseen(_naming("b", "c", "a", "d"), seen) == ["d"]
    assert children_unseen(None, seen) == []
