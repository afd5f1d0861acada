"""Rules from a file: what each line means, and that what means nothing is refused."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from foldline.errors import SettingsError
from foldline.producers.oversight_file import read_policies
from foldline.projections.oversight import Rule, Seen, Wish
from foldline.projections.oversight_rules import (
    Budget,
    ForbiddenTool,
    Limits,
    Loop,
    Reaction,
    RepeatedDenial,
)
from foldline.schemas.recorded import Recorded


def quiet(_seen: Seen, _recorded: Recorded) -> Sequence[Wish]:
    """A user's rule that wants nothing."""
    return ()


class Counting:
    """A user's rule with options and a version."""

    version = 3
    content = True

    def __init__(self, most: int = 1) -> None:
        self.most = most

    def judge(self, _seen: Seen, _recorded: Recorded) -> Sequence[Wish]:
        """Nothing."""
        return ()


NAMED: dict[str, Any] = {
    "mine:quiet": quiet,
    "mine:Counting": Counting,
    "mine:counting": Counting(),
    "mine:number": 7,
}


def rules_of(folder: Path, text: str) -> Any:
    path = folder / "policies.toml"
    path.write_text(text, encoding="utf-8")
    return read_policies(path, load=NAMED.__getitem__)


def test_every_kind_of_rule_is_read_with_all_its_fields(tmp_path: Path) -> None:
    read = rules_of(
        tmp_path,
        """
        policy = "house"
        [[rule]]
        name = "spend"
        kind = "budget"
        tokens = 2_000_000
        cost = 20
        currency = "EUR"
        turn_minutes = 1.5
        action = "cancel"
        target = "turn"
        severity = "critical"
        version = 2
        [[rule]]
        name = "no-production"
        kind = "forbidden-tool"
        tools = ["deploy*", "prod/*"]
        exceptions = "deploy_preview"
        [[rule]]
        name = "stubborn"
        kind = "repeated-denial"
        times = 2
        any_call = true
        [[rule]]
        name = "loops"
        kind = "loop"
        kinds = ["SAME_*"]
        action = "steer"
        mode = "next-turn"
        message = "ask"
        """,
    )
    cancel = Reaction("CANCEL", "TURN", "CRITICAL")
    limits = Limits(tokens=2_000_000, cost=20, currency="EUR", turn_minutes=1.5)
    steer = Reaction("STEER", message="ask", mode="NEXT_TURN")
    globs = ("deploy*", "prod/*")
    assert read == (
        Budget("spend", limits, cancel, version=2, policy="house"),
        ForbiddenTool("no-production", globs, ("deploy_preview",), policy="house"),
        RepeatedDenial("stubborn", 2, any_call=True, policy="house"),
        Loop("loops", kinds=("SAME_*",), reaction=steer, policy="house"),
    )


def test_a_users_rule_is_a_function_or_something_that_judges(tmp_path: Path) -> None:
    plain, ready, made = rules_of(
        tmp_path,
        """
        [[rule]]
        name = "plain"
        use = "mine:quiet"
        content = true
        [[rule]]
        name = "ready"
        use = "mine:counting"
        version = 4
        [[rule]]
        name = "made"
        use = "mine:Counting"
        options = { most = 9 }
        """,
    )
    assert plain == Rule("plain", quiet, content=True, made_of='["mine:quiet", null]')
    assert made.made_of == '["mine:Counting", {"most": 9}]'
    assert (ready.version, ready.content) == (4, True)
    assert (made.version, made.function.__self__.most) == (3, 9)


RULE = '[[rule]]\nname = "r"\n'

MEANINGLESS = {
    "": "has no rule",
    "rule = 1": "write [[rule]]",
    "rule = [1]": "write [[rule]]",
    "rules = 1": "'rules' means nothing here",
    "rule =": "Invalid",
    '[[rule]]\nname = "Mine"': "its name is not of",
    RULE: "kind is one of budget, forbidden-tool, repeated-denial, loop",
    f'{RULE}kind = "budget"': "a budget has a limit",
    f'{RULE}kind = "budget"\ncurrency = "EUR"': "a budget has a limit",
    f'{RULE}kind = "budget"\ntokens = true': "tokens is a whole number from 0 on",
    f'{RULE}kind = "budget"\ntokens = 1.5': "tokens is a whole number from 0 on",
    f'{RULE}kind = "budget"\ncost = -1': "cost is a number from 0 on",
    f'{RULE}kind = "budget"\ntoken = 1': "'token' means nothing here",
    f'{RULE}kind = "forbidden-tool"': "it has no tools",
    f'{RULE}kind = "forbidden-tool"\ntools = []': "tools is a list of texts",
    f'{RULE}kind = "forbidden-tool"\ntools = [1]': "tools is a list of texts",
    f'{RULE}kind = "loop"\ntimes = "3"': "times is a whole number from 2 on",
    f'{RULE}kind = "loop"\ntimes = 1': "times is a whole number from 2 on",
    f'{RULE}kind = "repeated-denial"\ntimes = 0': "times is a whole number from 1 on",
    f'{RULE}kind = "repeated-denial"\nany_call = 1': "any_call is true or false",
    f'{RULE}kind = "loop"\naction = "kill"': "action is one of none, steer, cancel",
    f'{RULE}kind = "loop"\nmessage = 1': "message is a text",
    f'{RULE}kind = "loop"\nmessage = "{"x" * 4_001}"': "message has 4001 characters",
    f'{RULE}kind = "loop"\nversion = 0': "version is a number from 1 on",
    f'{RULE}kind = "loop"\nversion = 2147483648': "from 1 on, to 2147483647",
    f"rule = {'[' * 20_000}": "maximum recursion depth",
    f'{RULE}use = "mine:number"': "is no function (seen, recorded)",
    f'{RULE}use = "mine:Counting"': "is no function (seen, recorded)",
    f'{RULE}use = "mine:quiet"\ntools = 1': "'tools' means nothing here",
    f'{RULE}use = "mine:quiet"\ncontent = 1': "content is true or false",
    f'{RULE}use = "mine:Counting"\noptions = 1': "options is no table",
    f'{RULE}use = "mine:Counting"\noptions = {{ least = 1 }}': "unexpected keyword",
    f'{RULE}kind="loop"\n{RULE}kind="loop"': "two rules are called 'r'",
}


@pytest.mark.parametrize(("text", "problem"), MEANINGLESS.items(), ids=MEANINGLESS.values())
def test_what_means_nothing_is_refused_and_named(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(SettingsError, match=re.escape(problem)):
        rules_of(tmp_path, text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.toml"):
        read_policies(tmp_path / "none.toml", load=NAMED.__getitem__)
