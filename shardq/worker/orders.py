"""The orders of a lane, and the thread that obeys them: the one that called `work`. It also counts the grace.

- "stop": read no more, and let what runs end within the grace; "leave": the same, with the grace over at once.
- "nudge": wake a thread, since there may be something to do; "look": look whether what was read ahead has begun.
- "over": the lane holds nothing any more. An error: it ends the lane, and is raised at the end.

An order is put without a lock, so that a signal handler may do that.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Literal, TypeAlias

from shardq.clock import Clock
from shardq.worker.signals import MAX_WAIT
from shardq.worker.state import DRAINING
from shardq.worker.traffic import TrafficHost
from shardq.worker.trouble import RETURN_TIMEOUT, log_left, raised

Order: TypeAlias = Literal["stop", "leave", "over", "nudge", "look"] | BaseException


class Orders:
    """The orders of *lane*, which has *grace* seconds after the first one to stop. *end_read* ends its waiting read."""

    def __init__(self, lane: TrafficHost, clock: Clock, grace: float, end_read: Callable[[], None]) -> None:
        self._lane, self._clock, self._grace, self._end_read = lane, clock, grace, end_read
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self.put = self._orders.put

    def obey(self) -> None:
        """Do what is ordered, until the lane is over. Raise what ended it."""
        failure: BaseException | None = None
        end: float | None = None  # of the grace, or of the time to give messages back after it
        while True:
            try:
                order = self._orders.get(timeout=self._wait_time(end))
            except queue.Empty:
                if end is None or self._clock.monotonic() < end:
                    continue
                if not self._end_of_wait():
                    return raised(failure)
                end = self._clock.monotonic() + RETURN_TIMEOUT
                continue
            if order == "over":
                return raised(failure)
            if order in ("nudge", "look"):
                self._go_on(order)
                continue
            if isinstance(order, BaseException):
                failure = failure or order
            end = self._stop(end, at_once=order == "leave")

    def _wait_time(self, end: float | None) -> float:
        return MAX_WAIT if end is None else min(MAX_WAIT, max(0.0, end - self._clock.monotonic()))

    def _go_on(self, order: Order) -> None:
        if order == "look":
            with self._lane.lock:
                self._lane.state.look()
        self._lane.wake()

    def _stop(self, end: float | None, *, at_once: bool) -> float | None:
        """Stop the lane. Return the end of its grace: *end* if it was stopped before."""
        with self._lane.lock:
            if self._lane.state.stop() or at_once:
                end = self._clock.monotonic() + (0.0 if at_once else self._grace)
        if not self._lane.stopped.is_set():
            self._lane.stopped.set()
            # In a thread, so that the grace continues.
            threading.Thread(target=self._end_read, name="shardq-worker-stop", daemon=True).start()
        self._lane.wake()
        return end

    def _end_of_wait(self) -> bool:
        """The grace, or the time to give messages back, is over. False if there is nothing left to wait for."""
        with self._lane.lock:
            if self._lane.state.life == DRAINING:
                running = self._lane.state.grace_over()
            else:
                log_left(self._lane.state.give_up())
                return False
        for job in running:
            self._lane.interrupt(job)
        self._lane.wake()
        return True
