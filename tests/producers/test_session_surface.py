"""The names of `foldline` itself, each found by help()."""

import inspect

import foldline


def test_the_public_names_are_these_and_no_others() -> None:
    """A name more is a promise more."""
    assert foldline.__all__ == [
        "AppendRefusedError",
        "Client",
        "FencedError",
        "FoldlineError",
        "LiveOwnerError",
        "ModelResponse",
        "OwnedSession",
        "Reconciled",
        "SessionView",
        "Tool",
        "ToolContext",
        "ToolRequest",
        "Toolbox",
        "Turn",
        "connect",
        "read_event_tool",
    ]


def test_help_says_what_each_public_name_is_for() -> None:
    """Of its methods too: a sentence each."""
    assert all(name in (foldline.__doc__ or "") for name in foldline.__all__)
    undocumented = [
        f"{name}.{member}"
        for name in foldline.__all__
        for member, value in inspect.getmembers(getattr(foldline, name))
        if not member.startswith("_")
        and inspect.isfunction(value)
        and value.__module__.startswith("foldline")
        and not inspect.getdoc(value)
    ]
    assert undocumented == []
    assert all(inspect.getdoc(getattr(foldline, name)) for name in foldline.__all__)
