"""Stands: the blocked reads that an `AsyncClient` keeps at the partitions of a queue, on behalf of all its readers.

The twin of `sync_stands`, with tasks. A stand is an ordinary blocked read, so what it says of waking and leases holds:
the engine does not know that somebody stands at several queues.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from shardq.drivers.exchanges import Pending
from shardq.errors import BackendError, QueueMissing, ShardqError
from shardq.model import Received
from shardq.ops.queue.steps import Op
from shardq.ops.read.give_back import give_back, give_back_all
from shardq.ops.read.look import Look
from shardq.ops.read.read import read
from shardq.ops.read.waiting import MAX_PER_CALL, Outstanding
from shardq.partitions.away import FIRST_RETRY, MAX_RETRY
from shardq.partitions.late import PATIENCE, drop, offer_to
from shardq.partitions.parts import Parts
from shardq.partitions.reads import Rows, WantedRead, late_look, let_go, looked

if TYPE_CHECKING:
    from shardq.client.async_client import AsyncClient

STAYS_SECONDS: Final = 1.0
"""Seconds for which stands stay after the last who waited: mostly the next one comes soon."""

BLOCK: Final = 5.0
"""Seconds of one blocked read of a stand."""


class Waits:
    """Somebody who waits for up to `count` messages with leases of `visibility` seconds, and the `rows` that came."""

    def __init__(self, count: int, visibility: float | None) -> None:
        self.count, self.visibility = count, visibility
        self.rows: Rows = {}
        self.came: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class AsyncStands:
    """The stands of one client at the partitions of one queue: as many as partitions, for each time that leases last.

    The reader that has waited longest gets what comes. Messages that nobody wants go back at once, and are not counted
    as delivered.
    """

    def __init__(self, client: AsyncClient, parts: Parts) -> None:
        self._client, self._parts, self._loop = client, parts, asyncio.get_running_loop()
        self._waiting: list[Waits] = []
        self._tasks: dict[tuple[int, float | None], asyncio.Task[None]] = {}
        self._leaving: asyncio.TimerHandle | None = None

    async def wait(self, count: int, visibility: float | None, until: float) -> Rows | None:
        """Return up to *count* messages as soon as a partition has some; {} if none has by local time *until*."""
        waits = Waits(count, visibility)
        self._waiting.append(waits)
        for number in range(len(self._parts.states)):
            self._begin(number, visibility)
        self.offer(visibility)
        try:
            async with asyncio.timeout(max(0.0, until - self._parts.states[0].clock.monotonic())):
                await waits.came
        except TimeoutError:
            pass  # they may have come at the same time
        except asyncio.CancelledError:
            for number, rows in waits.rows.items():
                self._run_back(number, rows)  # it was for somebody who left at the same moment
            raise
        finally:
            if waits in self._waiting:
                self._waiting.remove(waits)
            self._leave()
        return waits.rows

    def follow(self, parts: Parts) -> None:
        """Stand at the partitions of another map from now on. Any thread may say so."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._follow, parts)

    def _follow(self, parts: Parts) -> None:
        self._parts = parts
        for visibility in {each.visibility for each in self._waiting}:
            for number in range(len(parts.states)):
                self._begin(number, visibility)

    async def look(self, wanted: WantedRead, number: int, look: Look) -> list[Received] | None:
        """Make the first try of a read. Return its messages; None if its call must continue. It may be late."""
        if look.acks is not None:
            return looked(self._parts, wanted, number, look, await self._made(wanted, look))
        task = asyncio.ensure_future(self._client.look(look))
        try:
            await asyncio.wait((task,), timeout=PATIENCE)
        except asyncio.CancelledError:
            task.cancel()
            self.give_back(wanted)
            raise
        if task.done():
            return looked(self._parts, wanted, number, look, task.result())
        late_look(self._parts, wanted, number, look, Pending(task), _rows_of)
        return None

    async def _made(self, wanted: WantedRead, look: Look) -> list[Received] | None:
        try:
            return await self._client.look(look)
        except asyncio.CancelledError:
            self.give_back(wanted)
            raise

    def give_back(self, wanted: WantedRead) -> None:
        """Give back what a cancelled read was granted."""
        for op in let_go(self._parts, wanted):
            self._client._run_in_background(op)

    def aside(self, op: Op[None]) -> None:
        """Run *op* in the background, until the client is closed: messages that are held then go back."""
        task = asyncio.get_running_loop().create_task(self._run_aside(op))
        self._client._stands.add(task)
        task.add_done_callback(self._client._stands.discard)

    async def _run_aside(self, op: Op[None]) -> None:
        try:
            await self._client._driver.run(op)
        except asyncio.CancelledError:
            for held in [*self._parts.held]:
                if rest := drop(self._parts, held):
                    self._run_back(held.number, rest)
            raise
        except ShardqError:  # the client was closed
            return

    def offer(self, visibility: float | None) -> None:
        """Give those who wait what came late."""
        if self._parts.held:
            for held in offer_to(self._parts, visibility, partial(self._give, visibility)):
                self._run_back(held.number, held.rows)

    def _begin(self, number: int, visibility: float | None) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None
        task = self._tasks.get((number, visibility))
        if task is None or task.done():
            task = asyncio.get_running_loop().create_task(self._stand(number, visibility))
            self._tasks[number, visibility] = task
            self._client._stands.add(task)
            task.add_done_callback(partial(self._ended, number, visibility))

    def _leave(self) -> None:
        """End the stands soon, unless somebody waits."""
        if not self._waiting and self._leaving is None:
            self._leaving = asyncio.get_running_loop().call_later(STAYS_SECONDS, self._end)

    def _end(self) -> None:
        self._leaving = None
        if not self._waiting:
            for task in self._tasks.values():
                task.cancel()
            self._tasks.clear()

    async def _stand(self, number: int, visibility: float | None) -> None:
        """Read from one partition for those who wait, until it leaves, the task is cancelled or the client is closed.

        No read is longer than the map is new: all that wait hear of new partitions in time. A stand ends if nobody
        wants its leases of that length any more and others wait: those never let `_leave` end it.
        """
        pause = FIRST_RETRY
        while number < len(self._parts.states):
            state, block = self._parts.states[number], min(BLOCK, self._parts.fresh_for())
            wanted = sum(each.count for each in self._waiting if each.visibility == visibility)
            if not wanted and self._waiting:
                return
            granted = Outstanding()
            try:
                rows = await self._client.run(
                    read(state, max(1, min(wanted, MAX_PER_CALL)), block, visibility, outstanding=granted)
                )
            except asyncio.CancelledError:
                if granted.holder or granted.rows:
                    self._client._run_in_background(give_back_all(state, granted, state.until()))
                raise
            except (BackendError, QueueMissing) as error:
                self._hear(number, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_RETRY)
                continue
            except ShardqError:  # the client was closed
                return
            pause = FIRST_RETRY
            if number in self._parts.away.numbers:
                self._hear(number, rows)
            if rest := self._give(visibility, number, rows):
                self._run_back(number, rest)

    def _hear(self, number: int, outcome: object) -> None:
        with self._parts.lock:
            self._parts.away.heard(number, outcome)

    def _give(self, visibility: float | None, number: int, rows: list[Received]) -> list[Received]:
        """Give messages to those who wait. Return what nobody wants."""
        for waits in [each for each in self._waiting if each.visibility == visibility]:
            if not rows:
                break
            if waits.came.done():
                continue
            taken, rows = rows[: waits.count], rows[waits.count :]
            waits.rows = {number: taken}
            waits.came.set_result(None)
            self._waiting.remove(waits)
        return rows

    def _ended(self, number: int, visibility: float | None, task: asyncio.Task[None]) -> None:
        """Wake those who wait if the client was closed: they find that out. The *task* may never have run."""
        self._client._stands.discard(task)
        if self._tasks.get((number, visibility)) is task:
            del self._tasks[number, visibility]
        if self._client._closed:
            for waits in self._waiting:
                if not waits.came.done():
                    waits.came.set_result(None)

    def _run_back(self, number: int, rows: list[Received]) -> None:
        state: Any = self._parts.at(number)
        self._client._run_in_background(give_back(state, rows, state.until()))


def _rows_of(ended: Any) -> list[Received] | None:
    return None if isinstance(ended, Exception) else ended
