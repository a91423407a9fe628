"""Who has what, in each order and on each page: exactly as books that know the time say, whoever read last."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from shardq.model.tenant import Tenant
from shardq.ops.inspect import tenants
from shardq.ops.inspect.tenants import Order
from tests.promises.clerk import Clerk
from tests.promises.test_looks import Office, told
from tests.selection import SOAK
from tests.servers import Server

NAMES = (*(f"t{number}" for number in range(11)), "é")
QUEUES = 600 if SOAK else 12
STEPS = 50
"""In one queue."""


class Registry(Office):
    """A queue with more tenants, which may be parents, and windows of any size."""

    def __init__(self, server: Server, rng: random.Random, *, reads: bool) -> None:
        self.has_parents = rng.random() < 0.4
        window = rng.choice((1, 1, 2, 50))
        super().__init__(server, rng, reads=reads, tenants=NAMES, window=window, parents=int(self.has_parents))
        self.log.append(f"window {window}, {'with' if self.has_parents else 'without'} parents")

    def shard_key(self, tenant: str, *, is_unique: bool = False) -> str:
        """Of a parent, one of its children; unique keys are each child's own."""
        child = 0 if is_unique else self.rng.randrange(3)
        return f"{tenant}/{child}" if self.has_parents else tenant

    def pause(self) -> None:
        """As before, or a tenant without an end."""
        if self.rng.random() < 0.5:
            return super().pause()
        tenant = self.rng.choice(self.tenants)
        self.queue.pause(tenant)
        self.books.pauses[tenant] = math.inf
        return None

    def look(self) -> int:
        """Compare each order, whole and in pages. Returns how many looks that were."""
        for order, wanted in _orders(self.books, self.tenants, self.now).items():
            found = self.queue.tenants(order, limit=100)
            assert [(each.shard_key, _rank(order, each)) for each in found] == wanted, order
            start, limit = self.rng.randrange(6), self.rng.randint(1, 6)
            page = self.queue.tenants(order, limit=limit, start=start)
            assert [each.shard_key for each in page] == [name for name, _ in wanted][start : start + limit], order
            for each in (*found, *page):
                name = str(each.shard_key)
                assert each.backlog == each.in_streams + each.held_back
                counted = self.books.tenant(name, self.now)
                assert (each.backlog, each.in_flight, each.delayed) == (
                    counted.backlog,
                    counted.in_flight,
                    counted.delayed,
                ), f"{order}: {name}"
                assert _ms(each.oldest_age) == _ms(counted.oldest), f"{order}: {name}"
        held = [each.held_back for each in self.queue.tenants("held_back", limit=100)]
        assert held == sorted((n for each in self.queue.tenants(limit=100) if (n := each.held_back)), reverse=True)
        return 3


def _orders(books: Clerk, names: Sequence[str], now: float) -> dict[Order, list[tuple[str, int]]]:
    figures = {name: books.tenant(name, now) for name in names}
    backlogs = {name: each.backlog for name, each in figures.items() if each.backlog or each.delayed}
    flights = {name: each.in_flight for name, each in figures.items() if each.in_flight}
    ages = {name: _ms(each.oldest) for name, each in figures.items() if each.oldest is not None}
    return {"backlog": _ranked(backlogs), "in_flight": _ranked(flights), "oldest": _ranked(ages)}


def _ranked(ranks: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(ranks.items(), key=lambda each: (-each[1], each[0].encode()))


def _rank(order: Order, found: Tenant) -> int:
    if order == "oldest":
        return _ms(found.oldest_age)
    return found.backlog if order == "backlog" else found.in_flight


def _ms(age: float | None) -> int:
    return -1 if age is None else round(age * 1000)


@pytest.mark.once
@pytest.mark.runs_in("test", "test-all", "soak")
@pytest.mark.timeout(0 if SOAK else 120)
@pytest.mark.parametrize("small", [0, 10_000], ids=["many wait", "few wait"])
@pytest.mark.parametrize("reads", [True, False], ids=["somebody reads", "nobody reads any more"])
def test_each_order_is_that_of_the_moment(
    server: Server, seed: int, reads: bool, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenants, "FEW_MESSAGES", small)
    for number in range(QUEUES):
        rng = random.Random(f"{seed}.{number}")
        office = Registry(server, rng, reads=reads)
        with told(office, f"{seed}.{number}"):
            for at in range(STEPS):
                office.step(may_read=reads or at < STEPS / 2)
                if at % 5 == 4:
                    office.look()
        office.queue.delete(expected=None)
