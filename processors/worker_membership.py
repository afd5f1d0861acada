"""Whether a worker without partitions is a member of its group at all.

The group never tells a member that it is left without partitions. So a spare looks like
one that may not join: only the group's coordinator knows, and is asked now and then.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaException

LOOK_EVERY_MS = 20_000
"""After how long without partitions the coordinator is asked, and how often then."""

ASK_TIMEOUT_MS = 10_000
"""How long it has for its answer."""

NOT_YET = "the group has not given partitions yet"


class Membership:
    """Called from the poll loop's thread only, as the group's callbacks are.

    Args:
        group: its name.
        member_id: gives the member's id, as soon as there is one.
        make_admin: makes the client that asks, at the first need.
    """

    def __init__(
        self,
        group: str,
        *,
        member_id: Callable[[], str | None],
        make_admin: Callable[[], Any],
    ) -> None:
        self._group = group
        self._member_id = member_id
        self._make_admin = make_admin
        self._admin: Any = None
        self._trouble = ""
        self.left()

    def left(self) -> None:
        """Say that no partitions are its own: it has not joined, or must join again."""
        self._is_given = self._is_spare = False
        self._asked: Future[Any] | None = None
        self._asked_s = time.monotonic()

    def emptied(self) -> None:
        """Say that the group took its last partition: a member it was until now."""
        self.left()
        self._trouble = ""

    def given(self) -> None:
        """Say that the group gave it partitions, or said that it has none for it."""
        self._is_given = True
        self._trouble = ""

    def refused(self, reason: str) -> None:
        """Keep what the client says of the group, until that gives partitions."""
        self._trouble = reason

    def waits_for(self) -> str:
        """What it waits for; empty where it was given its partitions, or is a spare."""
        if self._is_given:
            return ""
        self._look()
        return "" if self._is_spare else self._trouble or NOT_YET

    def _look(self) -> None:
        """Take an answer that has come; ask when it is time. Nothing here waits."""
        if self._asked is not None and self._asked.done():
            self._take(self._asked)
            self._asked = None
        now_s = time.monotonic()
        if self._asked is None and now_s - self._asked_s >= LOOK_EVERY_MS / 1000:
            self._asked_s = now_s
            self._asked = self._ask()

    def _ask(self) -> "Future[Any]":
        if self._admin is None:
            self._admin = self._make_admin()
        timeout_s = ASK_TIMEOUT_MS / 1000
        return self._admin.describe_consumer_groups(
            [self._group], request_timeout=timeout_s
        )[self._group]

    def _take(self, asked: "Future[Any]") -> None:
        try:
            members = asked.result().members
        except (KafkaException, TimeoutError) as error:
            self._is_spare = False
            self._trouble = self._trouble or f"the group does not say who is in it: {error}"
            return
        self._is_spare = self._member_id() in {member.member_id for member in members}
        if self._is_spare:
            self._trouble = ""
