"""The connections that have run as far ahead of their readers as they may, and when more may come from them."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from shardq.clock import Clock
from shardq.gateway.ahead import Ahead

WAIT_OF_EMPTY_CALL: Final = 0.005
"""Seconds. A call that waits this long has no whole message in grpc."""


class PacedRunner(Protocol):
    """A connection that is ahead."""

    ahead: Ahead

    def refill(self) -> None:
        """Read again."""


class ProducerPace:
    """Those that wait, in their order."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[PacedRunner, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __contains__(self, runner: PacedRunner) -> bool:
        """Return whether it waits here."""
        return runner in self._waiting

    def add(self, runner: PacedRunner) -> None:
        """Look after a connection that may not continue for now."""
        self._waiting[runner] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WAIT_OF_EMPTY_CALL, self._tick)

    def discard(self, runner: PacedRunner) -> None:
        """It continues, or is gone."""
        self._waiting.pop(runner, None)

    def _tick(self) -> None:
        now = self._clock.monotonic()
        for runner in list(self._waiting):
            if runner.ahead.may_go_on(now):
                del self._waiting[runner]
                runner.refill()
        self._timer = asyncio.get_running_loop().call_later(WAIT_OF_EMPTY_CALL, self._tick) if self._waiting else None
