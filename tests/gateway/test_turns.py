"""Turns between tokens: at the loop, and for the places of storing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest

from shardq.gateway.turns import STEP_MESSAGES, GatewayTurns, TurnPlaces, cost_of


async def settled() -> None:
    """Let the loop run until nothing is left that could be done at once."""
    for _ in range(20):
        await asyncio.sleep(0)


async def order_of(turns: GatewayTurns, wanted: dict[str, tuple[int, float]]) -> list[str]:
    """The names in the order of their turns, when each asks for so many at once, of such a cost each."""
    order: list[str] = []

    async def one(name: str, cost: float) -> None:
        if not turns.take(cost):
            await turns.wait(name, cost)
        order.append(name)

    await asyncio.gather(*[one(name, cost) for name, (count, cost) in wanted.items() for _ in range(count)])
    return order


async def test_a_turn_is_taken_at_once_while_nobody_waits() -> None:
    turns = GatewayTurns()
    assert [turns.take(1.0) for _ in range(int(STEP_MESSAGES) + 1)] == [True] * int(STEP_MESSAGES) + [False]
    await settled()
    assert turns.take(1.0), "each step of the loop has room anew"


async def test_who_asks_for_little_goes_next_however_many_wait() -> None:
    order = await order_of(GatewayTurns(), {"flood": (500, 1.0), "quiet": (3, 1.0)})
    assert order.index("quiet") <= STEP_MESSAGES + 2
    assert [at for at, name in enumerate(order) if name == "quiet"][-1] <= STEP_MESSAGES + 6


async def test_turns_are_shared_by_cost_not_by_count() -> None:
    order = await order_of(GatewayTurns(), {"large": (100, 10.0), "small": (1000, 1.0)})
    half = order[: len(order) // 2]
    assert half.count("small") == pytest.approx(10 * half.count("large"), abs=20)


async def test_three_tokens_get_the_same_whatever_their_connections() -> None:
    order = await order_of(GatewayTurns(), {"a": (600, 1.0), "b": (300, 1.0), "c": (300, 1.0)})
    assert [order[:600].count(name) for name in "abc"] == pytest.approx([200] * 3, abs=5)


async def test_between_two_steps_the_loop_does_other_work() -> None:
    turns, seen = GatewayTurns(), list[int]()
    taken = asyncio.create_task(order_of(turns, {"flood": (100, 1.0)}))
    while not taken.done():
        await asyncio.sleep(0)
        seen.append(0)
    assert len(seen) >= 100 / STEP_MESSAGES


async def test_who_is_cancelled_leaves_the_line() -> None:
    turns = GatewayTurns()
    while turns.take(1.0):
        pass
    waiting = [asyncio.create_task(turns.wait("t", 1.0)) for _ in range(10)]
    await asyncio.sleep(0)
    for each in waiting[:9]:
        each.cancel()
    await waiting[9]
    assert all(each.cancelled() for each in waiting[:9])


def test_bytes_cost_as_much_as_messages() -> None:
    assert cost_of(1, 0) == 1
    assert cost_of(0, 1_000_000) == 100


MOST = 80


class Work:
    """Notes how much is under way, and what has begun in which order."""

    def __init__(self) -> None:
        self.places, self.begun, self.now = TurnPlaces(MOST), list[str](), 0
        self.peak = 0

    async def do(self, name: str, size: int = 10, cost: float = 1.0) -> None:
        async with self.places.place(name, cost, size):
            self.begun.append(name)
            self.now += size
            self.peak = max(self.peak, self.now)
            await asyncio.sleep(0)
            self.now -= size


async def test_places_are_bounded_by_bytes_and_what_is_larger_goes_alone() -> None:
    work = Work()
    await asyncio.gather(*[work.do(name, size) for name in "abcdefghi" for size in (10, 30, 80)])
    assert len(work.begun) == 27
    assert work.peak <= MOST
    await work.do("a", 10 * MOST)
    assert work.peak == 10 * MOST


async def test_another_token_finds_a_place_at_once() -> None:
    work = Work()
    async with AsyncExitStack() as held:
        for _ in range(2):
            await held.enter_async_context(work.places.place("flood", 1.0))
        third = asyncio.create_task(work.do("flood"))
        await settled()
        assert not third.done(), "a token has two of the eight places"
        await work.do("quiet")
        assert work.begun == ["quiet"]
    await third


async def test_places_go_in_turns() -> None:
    work = Work()
    await asyncio.gather(*[work.do("flood", MOST) for _ in range(50)], work.do("quiet", MOST))
    assert work.begun.index("quiet") <= 2


@pytest.mark.parametrize("when", [settled, lambda: asyncio.sleep(0)])
async def test_a_place_is_free_again_after_a_cancellation_at_any_time(
    when: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    work = Work()
    for _ in range(30):
        tasks = [asyncio.create_task(work.do(name, MOST)) for name in "abcab"]
        await when()
        for each in tasks[::2]:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.wait_for(work.do("z", MOST), 5)
