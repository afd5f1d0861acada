"""What keeps one client from taking the service from all others: rates, lanes, places."""

import asyncio
import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeVar

from foldline.projections.service_problems import RETRY_AFTER_S, Problem

BURST_S = 2
"""How many seconds' worth may be taken at once, after a pause."""

BUCKETS_MAX = 20_000
"""How many tokens and tenants have their rates remembered; more than there may be."""

SHAPED_WAITING_MAX = 8
"""How many wait for contexts by another policy than their session's: each takes a thread
for long, so one after another is made, apart from what others read."""

Params = ParamSpec("Params")
Answer = TypeVar("Answer")


@dataclass(slots=True)
class _Bucket:
    left: float
    at_s: float


class Rates:
    """How many requests and appended events a second each name may make."""

    def __init__(self, *, per_s: int, what: str) -> None:
        self._per_s = per_s
        self._most = per_s * BURST_S
        self._what = what
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, name: str, count: int = 1) -> None:
        """Count so many of a name. Called in one thread.

        Raises:
            Problem: 429; it says when to come back.
        """
        now = time.monotonic()
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = _Bucket(float(self._most), now)
            if len(self._buckets) > BUCKETS_MAX:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(name)
        bucket.left = min(self._most, bucket.left + (now - bucket.at_s) * self._per_s)
        bucket.at_s = now
        # What is asked for at once may be more than a burst: then a full bucket does.
        if bucket.left < min(count, self._most):
            wait_s = math.ceil((min(count, self._most) - bucket.left) / self._per_s)
            detail = f"more than {self._per_s} requests and events a second {self._what}"
            raise Problem(429, "too_many", detail, retry_after_s=max(wait_s, 1))
        bucket.left -= count


class Lane:
    """A bounded number of threads for calls that block, and a bounded queue before them."""

    def __init__(self, name: str, *, threads: int, waiting_max: int) -> None:
        self._name = name
        self._most = threads + waiting_max
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"foldline-{name}")
        self._lock = threading.Lock()
        self._under_way = 0

    @property
    def under_way(self) -> int:
        """How many calls run or wait."""
        return self._under_way

    async def run(
        self, function: Callable[Params, Answer], *args: Params.args, **named: Params.kwargs
    ) -> Answer:
        """The function's answer, from a thread.

        A caller that goes away does not stop it: it counts until it has ended.

        Raises:
            Problem: 503, where too many wait already.
        """
        with self._lock:
            if self._under_way >= self._most:
                detail = f"{self._under_way} requests wait to {self._name}"
                raise Problem(503, "busy", detail, retry_after_s=RETRY_AFTER_S)
            self._under_way += 1
        try:
            future = self._pool.submit(partial(function, *args, **named))
        except RuntimeError as error:
            self._ended(None)
            raise Problem(503, "stopping", "the service stops", retry_after_s=1) from error
        future.add_done_callback(self._ended)
        return await asyncio.wrap_future(future)

    def _ended(self, _: "Future[Answer] | None") -> None:
        with self._lock:
            self._under_way -= 1

    def close(self) -> None:
        """Begin nothing new; what runs ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class Places:
    """So many places for who stays long, of which one tenant takes at most its share.

    Called in one thread.
    """

    def __init__(self, *, most: int, of_tenant: int) -> None:
        self._most = most
        self._of_tenant = of_tenant
        self._taken: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        """How many are taken."""
        return self._taken.total()

    def check(self, tenant: str) -> None:
        """Refuse one more.

        Raises:
            Problem: 503 where all are taken, 429 where the tenant has its share.
        """
        if self.taken >= self._most:
            detail = f"{self.taken} wait already"
            raise Problem(503, "busy", detail, retry_after_s=RETRY_AFTER_S)
        if self._taken[tenant] >= self._of_tenant:
            detail = f"{self._of_tenant} of this tenant wait already"
            raise Problem(429, "too_many", detail, retry_after_s=RETRY_AFTER_S)

    @contextmanager
    def take(self, tenant: str) -> Generator[None]:
        """Have a place.

        Raises:
            Problem: as `check`.
        """
        self.check(tenant)
        self._taken[tenant] += 1
        try:
            yield
        finally:
            self._taken[tenant] -= 1
            if not self._taken[tenant]:
                del self._taken[tenant]


@dataclass(slots=True)
class _Share:
    free: asyncio.Semaphore
    asking: int = 0


class Turns:
    """The same for what is soon over: who finds no place waits for one.

    Of several, a tenant waits among its own first: however many it sends, those of
    another one wait only for the places that it may have.
    """

    def __init__(self, *, most: int, of_tenant: int) -> None:
        self._free = asyncio.Semaphore(most)
        self._of_tenant = of_tenant
        self._shares: dict[str, _Share] = {}

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncGenerator[None]:
        """Have a place, after those who came before."""
        share = self._shares.get(tenant)
        if share is None:
            share = self._shares[tenant] = _Share(asyncio.Semaphore(self._of_tenant))
        share.asking += 1
        try:
            async with share.free, self._free:
                yield
        finally:
            share.asking -= 1
            if not share.asking:
                del self._shares[tenant]
