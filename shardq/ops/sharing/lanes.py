"""The order of callers that share calls: of one lane, at most one call is under way.

Calls overtake each other, since each has a connection of its own, so callers whose order matters must not be in two at
once. They name a lane, such as a shard key. Within a call the order is that in which they came; one that comes while a
call has the lane stands aside until it ends. Callers without a lane know nothing of all this.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from typing import Any

from shardq.ops.sharing.caller import Caller, Phase


class _Lane:
    """One lane: how many of it are in line, whether a call has it, and who stands aside meanwhile."""

    __slots__ = ("aside", "in_line", "taken")

    def __init__(self) -> None:
        self.in_line = 0
        self.taken = False
        self.aside: deque[Caller[Any, Any]] = deque()


class Lanes:
    """The lanes that are in use. Callers of a lane that no call has stand in the coalescer's line."""

    def __init__(self) -> None:
        self._lanes: dict[Hashable, _Lane] = {}

    def __len__(self) -> int:
        return len(self._lanes)

    def __iter__(self) -> Iterator[Caller[Any, Any]]:
        """Go through all who stand aside."""
        for lane in self._lanes.values():
            yield from lane.aside

    def may_queue(self, caller: Caller[Any, Any]) -> bool:
        """Take a caller that comes. Return whether it may stand in line; otherwise, it stands aside now.

        While some of its lane are left in line, it must stand behind them.
        """
        lane = self._lanes.get(caller.lane)
        if lane is None:
            lane = self._lanes[caller.lane] = _Lane()
        if lane.taken and not lane.in_line:
            lane.aside.append(caller)
            return False
        lane.in_line += 1
        return True

    def may_go(self, caller: Caller[Any, Any], own: set[Hashable]) -> bool:
        """Take a caller out of the line. Return whether it may go into the call that has the lanes *own*.

        That call has its lane then. Otherwise, the caller stands aside now, or has ended.
        """
        lane = self._lanes[caller.lane]
        lane.in_line -= 1
        if caller.phase is not Phase.WAITING:
            self._forget(caller.lane)
            return False
        if lane.taken and caller.lane not in own:
            lane.aside.append(caller)
            return False
        lane.taken = True
        own.add(caller.lane)
        return True

    def end(self, own: set[Hashable]) -> list[Caller[Any, Any]]:
        """End a call that had the lanes *own*. Return who stood aside for it: they go to the head of the line."""
        ready: list[Caller[Any, Any]] = []
        for name in own:
            lane = self._lanes[name]
            waiting = [caller for caller in lane.aside if caller.phase is Phase.WAITING]
            lane.aside.clear()
            lane.taken = False
            lane.in_line += len(waiting)
            # Those of their lane that are in line came after them.
            ready += waiting
            self._forget(name)
        own.clear()
        return ready

    def _forget(self, name: Hashable) -> None:
        lane = self._lanes[name]
        if not (lane.taken or lane.in_line or lane.aside):
            del self._lanes[name]
