"""Stands: the blocked reads that a `Client` keeps at the partitions of a queue, on behalf of all its readers.

The twin of `async_stands`, with a thread for each partition while somebody waits.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from shardq.drivers.exchanges import Pending
from shardq.errors import BackendError, ClosedError, QueueMissing, ShardqError
from shardq.model import Received
from shardq.ops.queue.steps import Call, Op
from shardq.ops.read.give_back import give_back
from shardq.ops.read.look import Look
from shardq.ops.read.read import read
from shardq.ops.read.waiting import MAX_PER_CALL
from shardq.partitions.away import FIRST_RETRY, MAX_RETRY
from shardq.partitions.late import PATIENCE, HeldMessages, drop, offer_to
from shardq.partitions.parts import Parts
from shardq.partitions.reads import Rows, WantedRead, late_look, looked

if TYPE_CHECKING:
    from shardq.client.client import Client

BLOCK: Final = 1.0
"""Seconds of one blocked read of a stand. For so long it stays after the last who waited."""

MIN_PAUSE: Final = 0.001
MAX_PAUSE: Final = 0.05
"""Seconds between two tries to end a stand that is about to wait."""


class Waits:
    """A thread that waits for up to `count` messages with leases of `visibility` seconds, and the `rows` that came."""

    def __init__(self, count: int, visibility: float | None) -> None:
        self.count, self.visibility, self.thread = count, visibility, threading.get_ident()
        self.rows: Rows = {}
        self.is_recalled = False
        # A lock that is held: to wait for its release is the cheapest way in which a thread can be woken.
        self.came = threading.Lock()
        self.came.acquire()


class Stands:
    """The twin of `AsyncStands`. Threads share it; in a forked child it begins again."""

    def __init__(self, client: Client, parts: Parts) -> None:
        self._client, self._parts = client, parts
        self._begin_anew()
        client._stands.add(self)

    def wait(self, count: int, visibility: float | None, until: float) -> Rows | None:
        """Return up to *count* messages as soon as a partition has some; {} if none has by local time *until*.

        None if `recall` ended the wait.
        """
        if self._pid != os.getpid():
            self._begin_anew()
        waits = Waits(count, visibility)
        with self._lock:
            if self._is_over:  # the next call says so
                return {}
            self._waiting.append(waits)
        try:
            with self._lock:
                self._stand_everywhere(visibility)
            self.offer(visibility)
            waits.came.acquire(timeout=max(0.0, until - self._parts.states[0].clock.monotonic()))
        except BaseException:  # such as KeyboardInterrupt, or no room for another thread
            self._stop(waits)
            for number, rows in waits.rows.items():
                self._return(number, rows)
            raise
        self._stop(waits)
        return waits.rows or (None if waits.is_recalled else {})

    def _stop(self, waits: Waits) -> None:
        """Let a reader wait no more that may have been given something already."""
        with self._lock, suppress(ValueError):
            self._waiting.remove(waits)

    def follow(self, parts: Parts) -> None:
        """Stand at the partitions of another map from now on."""
        with self._lock:
            self._parts = parts
            if self._pid == os.getpid() and not self._is_over:
                with suppress(RuntimeError):  # no room for another thread: who waits next says so
                    for visibility in {each.visibility for each in self._waiting}:
                        self._stand_everywhere(visibility)

    def _stand_everywhere(self, visibility: float | None) -> None:
        for number in range(len(self._parts.states)):
            if (number, visibility) not in self._standing:
                self._start(number, visibility)
                self._standing.add((number, visibility))  # it looks at that once this lock is free

    def look(self, wanted: WantedRead, number: int, look: Look) -> list[Received] | None:
        """Make the first try of a read. Return its messages; None if the operation must continue. It may be late."""
        if look.acks is not None:
            return looked(self._parts, wanted, number, look, self._client.look(look))
        driver, call = self._client._driver, cast("Call", look.step)
        begun = driver.begin(call)
        if begun is None:  # it must connect first
            wanted.granted.pop()
            return None
        look.made = True
        if isinstance(begun, Exception):
            return looked(self._parts, wanted, number, look, look.rows(begun))
        if not begun.comes(PATIENCE):
            rows_of = partial(_rows_of, look)
            late_look(self._parts, wanted, number, look, Pending(begun), rows_of)
            return None
        return looked(self._parts, wanted, number, look, look.rows(driver.ended(call, begun)))

    def aside(self, op: Op[None]) -> None:
        """Run *op* in a thread of its own, until the client is closed."""
        try:
            threading.Thread(target=self._run_aside, args=(op,), name="shardq-late", daemon=True).start()
        except RuntimeError:  # no room for another thread, or the program ends: the reader does it
            self._run_aside(op)

    def _run_aside(self, op: Op[None]) -> None:
        with suppress(ShardqError):  # the client was closed
            self._client._driver.run(op)

    def offer(self, visibility: float | None) -> None:
        """Give those who wait what came late."""
        if self._parts.held:
            for held in offer_to(self._parts, visibility, partial(self._give, visibility)):
                self._run_back(held)

    def _return(self, number: int, rows: list[Received]) -> None:
        """Give back what was for somebody who left at the same moment."""
        self._run_back(HeldMessages(number, None, rows))

    def _run_back(self, held: HeldMessages) -> None:
        with suppress(ShardqError):
            state = self._parts.at(held.number)
            self._client._driver.run(give_back(state, held.rows, state.until()))

    def recall(self, thread: int) -> None:
        """End the wait of another *thread*, if it waits here, as if its time were up."""
        for each in [*self._waiting]:
            if each.thread == thread:
                each.is_recalled = True
                self._wake([each])
                if not self._waiting:
                    self._recall_stands()

    def end(self) -> None:
        """End all stands, and wait until they have given back what came; not for long: a server may not answer.

        Those who wait are woken: their client is being closed.
        """
        if self._pid != os.getpid():
            return
        clock, self._is_over = self._parts.states[0].clock, True
        self._over.set()
        until, pause = clock.monotonic() + BLOCK, MIN_PAUSE
        self._wake([*self._waiting])
        for held in [*self._parts.held]:
            self._run_back(HeldMessages(held.number, held.visibility, drop(self._parts, held)))
        while (threads := [*self._threads]) and clock.monotonic() < until:
            self._recall_stands()  # more than once: one may be about to send its read
            threads[0].join(pause)
            pause = min(2 * pause, MAX_PAUSE)

    def _start(self, number: int, visibility: float | None) -> None:
        name = f"shardq-stand-{number}"
        thread = threading.Thread(target=self._live, args=(number, visibility), name=name, daemon=True)
        thread.start()
        self._threads.add(thread)

    def _live(self, number: int, visibility: float | None) -> None:
        try:
            self._stand(number, visibility)
        except BaseException:  # a mistake, or no memory: the next who waits makes another stand
            with self._lock:
                self._standing.discard((number, visibility))
            raise
        finally:
            self._threads.discard(threading.current_thread())

    def _recall_stands(self) -> None:
        for thread in [*self._threads]:
            if thread.ident is not None and thread is not threading.current_thread():
                with suppress(ClosedError):
                    self._client._driver.recall(thread.ident)

    def _begin_anew(self) -> None:
        self._pid, self._lock = os.getpid(), threading.Lock()
        self._waiting: list[Waits] = []
        self._standing: set[tuple[int, float | None]] = set()
        self._threads: set[threading.Thread] = set()
        self._is_over, self._over = False, threading.Event()

    def _stand(self, number: int, visibility: float | None) -> None:
        """Read from one partition for those who wait, until nobody does, or it leaves.

        No read is longer than the map is new: all that wait hear of new partitions in time.
        """
        pause = FIRST_RETRY
        run = self._client._driver.run  # a client that is being closed runs nothing else
        while (wanted := self._wanted(number, visibility)) > 0:
            state, block = self._parts.at(number), min(BLOCK, self._parts.fresh_for())
            try:
                rows = run(read(state, min(wanted, MAX_PER_CALL), block, visibility))
                pause = FIRST_RETRY
                if number in self._parts.away.numbers:
                    self._hear(number, rows)
                if rest := self._give(visibility, number, rows):
                    run(give_back(state, rest, state.until()))
            except (BackendError, QueueMissing) as error:
                self._hear(number, error)
                self._over.wait(pause)
                pause = min(2 * pause, MAX_RETRY)
            except ShardqError:  # the client was closed
                self._leave(number, visibility)
                return

    def _hear(self, number: int, outcome: object) -> None:
        with self._parts.lock:
            self._parts.away.heard(number, outcome)

    def _wanted(self, number: int, visibility: float | None) -> int:
        """Return how many messages are waited for. If none are, the stand is over, and the next who waits makes one."""
        with self._lock:
            is_there = number < len(self._parts.states)
            wanted = sum(each.count for each in self._waiting if each.visibility == visibility) if is_there else 0
            if not wanted:
                self._standing.discard((number, visibility))
            return wanted

    def _leave(self, number: int, visibility: float | None) -> None:
        """End a stand of a client that was closed. Those who wait find that out by themselves."""
        with self._lock:
            self._standing.discard((number, visibility))
        self._wake([*self._waiting])

    def _wake(self, waiting: list[Waits]) -> None:
        with self._lock:
            for waits in waiting:
                if waits in self._waiting:  # else it was woken already
                    self._waiting.remove(waits)
                    waits.came.release()

    def _give(self, visibility: float | None, number: int, rows: list[Received]) -> list[Received]:
        """Give messages to those who wait, beginning with the longest wait. Return what nobody wants."""
        with self._lock:
            for waits in [each for each in self._waiting if each.visibility == visibility]:
                if not rows:
                    break
                taken, rows = rows[: waits.count], rows[waits.count :]
                waits.rows = {number: taken}
                self._waiting.remove(waits)
                waits.came.release()
            return rows


def _rows_of(look: Look, ended: Any) -> list[Received] | None:
    return look.rows(ended if isinstance(ended, Exception) else ended[0])
