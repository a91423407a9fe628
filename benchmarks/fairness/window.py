"""The admission window, in the forms that were compared."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from benchmarks.fairness.disciplines import Sharded

Limit: TypeAlias = Callable[[int], int]
"""How many undelivered messages a tenant may hold in the shared streams, by the number of tenants that hold any."""


def fixed(window: int) -> Limit:
    """The same for any number of tenants."""
    return lambda _: window


def divided(room: int) -> Limit:
    """The tenants share *room* messages evenly, and each has at least one: wide while few are active."""
    return lambda tenants: max(1, room // max(1, tenants))


class Windowed(Sharded):
    """Shuffle sharding with an admission window.

    A tenant has at most `limit` undelivered messages in the shared streams. The rest waits in an overflow of its own;
    when one of its messages is delivered, the next one moves from the overflow to the streams.
    """

    def __init__(self, streams: int, per_shard: int, limit: Limit, *, salt: str = "") -> None:
        super().__init__(streams, per_shard, salt=salt)
        self._limit = limit
        self._held: dict[int, int] = {}  # undelivered in the shared streams
        self._overflow: dict[int, deque[int]] = {}
        self.passed = 0
        """Messages that went through overflow."""

    def write(self, tenant: int, *messages: int) -> None:
        for message in messages:
            if tenant in self._overflow or self._held.get(tenant, 0) >= self._room(tenant):
                self._overflow.setdefault(tenant, deque()).append(message)
                self.passed += 1
            else:
                self._admit(tenant, message)

    def read(self) -> tuple[int, int] | None:
        found = super().read()
        if found is not None:
            self._held[found[0]] -= 1
            self._move_in(found[0])
        return found

    def _room(self, tenant: int) -> int:
        return self._limit(len(self._held) + (tenant not in self._held))

    def _admit(self, tenant: int, message: int) -> None:
        super().write(tenant, message)
        self._held[tenant] = self._held.get(tenant, 0) + 1

    def _move_in(self, tenant: int) -> None:
        waiting = self._overflow.get(tenant)
        while waiting and self._held[tenant] < self._room(tenant):
            self._admit(tenant, waiting.popleft())
        if not waiting:
            self._overflow.pop(tenant, None)
        if not self._held[tenant]:
            del self._held[tenant]
