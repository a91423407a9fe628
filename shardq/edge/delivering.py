"""Delivers what a spool holds: oldest first, as much at once as the window allows, until the gateway has acked it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeVar

from shardq.backoff import Exponential
from shardq.clock import Clock, SystemClock
from shardq.datasink.messages import ClientInfo, Dictionary, Reason, Request
from shardq.edge.compression import Compressor, Trainer, trained
from shardq.edge.connection import Connection, ConnectionEnded, connected
from shardq.edge.effort import Effort
from shardq.edge.lock import DeliveryLock
from shardq.edge.settings import EdgeSettings
from shardq.edge.spool import Spool, Spooled
from shardq.errors import ConfigError, ShardqError
from shardq.flow import Limit, Sender, Sent, Vegas
from shardq.timing import LoopTimer

log = logging.getLogger("shardq")
T = TypeVar("T")

POLL: Final = 0.2
"""Seconds after which the spool is looked into for what other processes have put."""
TAKE_OVER: Final = 0.5
"""Seconds after which it is tried again to become the process that delivers."""
PAGE: Final = 256
RELEASE_AT: Final = 200
"""So many ids whose acks are noted are told to the gateway at once, or fewer after `POLL` seconds."""
PAUSE = Exponential(base=0.1, factor=2, cap=30.0)
DICTIONARY: Final = "dictionary"


def _limit() -> Limit:
    """Return how many messages may be in flight. A gateway stores at once what waits, so more than a few should wait.

    A producer with a backlog gains nothing by acks that come sooner. (Compared with 4 to 8: on loopback 1.8 times as
    many messages.)
    """
    return Vegas(low=32, high=64)


@dataclass(slots=True)
class Progress:
    """What the delivery is doing: for status, and for those who wait. Only the delivery changes it."""

    state: str = "starting"
    last_error: str = ""
    in_flight: int = 0
    window: int = 0
    sent: int = 0
    acked: int = 0
    again: int = 0
    refused: int = 0
    connections: int = 0
    plain_bytes: int = 0
    frame_bytes: int = 0


@dataclass(slots=True)
class Held:
    """A message that was read from the spool, and the timer of its present attempt."""

    message: Spooled
    timer: Any = field(default=None, repr=False)


class Delivering:
    """One process's delivery of a spool. `run` goes on until it is cancelled; all else is for its event loop only."""

    def __init__(
        self,
        settings: EdgeSettings,
        spool: Spool,
        *,
        clock: Clock | None = None,
        limit: Callable[[], Limit] = _limit,
        random: Random | None = None,
    ) -> None:
        self._settings, self._spool, self._random = settings, spool, random or Random()
        self._clock = clock or SystemClock()
        self._lock = DeliveryLock(spool.path)
        self._sender = Sender[bytes](limit())
        self._held: dict[bytes, Held] = {}
        self._held_bytes, self._last_seq = 0, 0
        self._released: deque[bytes] = deque()
        self._infos: deque[dict[str, Any]] = deque()
        self._compressor, self._trainer = Compressor(settings.level), Trainer()
        self._effort = Effort(settings.level)
        self._is_training, self._offers = False, list[int]()
        self._acked: dict[bytes, Spooled] = {}  # and not removed from the spool yet
        self._woken = asyncio.Event()
        self._draining, self._max_message = False, 2**63
        self._pool = ThreadPoolExecutor(1, "shardq-edge-spool")
        self.progress = Progress()

    async def run(self) -> None:
        """Deliver until cancelled."""
        loop = asyncio.get_running_loop()
        self._timer = LoopTimer(loop, clock=self._clock)
        try:
            await self._load_dictionary()
            failures = 0
            while True:
                if not self._lock.take():
                    self.progress.state = "another process delivers"
                    await asyncio.sleep(TAKE_OVER)
                    continue
                failures = 0 if await self._one_call() else failures + 1
                self.progress.state = "waiting to connect again"
                await asyncio.sleep(PAUSE(max(1, failures), self._random))
        finally:
            self._lock.free()
            self._timer.close()
            self._pool.shutdown(wait=False)
            self.progress.state = "stopped"

    def wake(self) -> None:
        """Something was put into the spool."""
        self._woken.set()

    async def _one_call(self) -> bool:
        """Deliver over one call. Return whether anything was acked by it."""
        before, self.progress.state = self.progress.acked, "connecting"
        info = ClientInfo(name=self._settings.name, releases=True, offered_dictionaries=self._offers)
        try:
            async with connected(self._settings, info) as connection:
                self.progress.state, self.progress.last_error = "connected", ""
                self.progress.connections += 1
                self._draining = False
                self._take_info(connection.welcome)
                await _first_failure(self._read(connection), self._send(connection))
        except (ShardqError, OSError) as error:  # of the call, or of the spool, as when the disk is full: tried again
            self._note(str(error))
        finally:
            for held in self._held.values():
                if held.timer is not None:
                    held.timer.cancel()
            self._sender.lost(self._clock.monotonic())
            self._compressor.use(None)
        return self.progress.acked > before

    async def _send(self, connection: Connection) -> None:
        """Send what there is, as the window allows."""
        while True:
            self._woken.clear()
            await self._forget_acked()
            await self._inform(connection)
            has_more = await self._fill()
            while not self._draining and (step := self._sender.next(self._clock.monotonic())) is not None:
                request = Request.FromString(self._held[step.id].message.request)
                if len(request.plain_message) > self._max_message:  # the gateway would end the call, again and again
                    text = f"the payload has {len(request.plain_message):,} bytes, more than {self._max_message:,}"
                    await self._refuse(step.id, "TOO_LARGE", text)
                    continue
                await connection.send(self._prepared(request, step))
            self.progress.in_flight, self.progress.window = self._sender.in_flight, self._sender.window
            self._effort.look(self._clock.monotonic(), is_blocked=len(self._sender) > self._sender.in_flight)
            if self._draining and not self._sender.in_flight:
                raise ConnectionEnded(f"the gateway {self._settings.gateway} is being stopped")
            if (has_more and self._sender.credit) or self._acked:
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL):
                    await self._woken.wait()

    async def _fill(self) -> bool:
        """Take messages from the spool ahead of the window. Return whether there may be more."""
        room = self._settings.in_memory - self._held_bytes
        waiting = len(self._sender) - self._sender.in_flight
        if self._draining or waiting >= PAGE / 2 or (room <= 0 and self._held):
            return False
        found = await self._in_thread(lambda: self._spool.after(self._last_seq, PAGE, max(room, 1)))
        for message in found:
            self._held[message.id] = Held(message)
            self._held_bytes += len(message.request)
            self._last_seq = message.seq
            self._sender.send(message.id)
        return len(found) == PAGE

    def _prepared(self, request: Any, step: Sent[bytes]) -> Any:
        """The request of a message that goes out now, compressed if that helps, with its timer started."""
        held = self._held[step.id]
        held.timer = self._timer.call_later(step.timeout, self._time_out, step)
        if self._settings.compress:
            payload = request.plain_message
            begun, self._compressor.level = self._clock.monotonic(), self._effort.level
            if frame := self._compressor.frame(payload):
                request.zstd_compressed = frame
            self._effort.spent(self._clock.monotonic() - begun)
            self.progress.frame_bytes += len(frame or payload)
            self.progress.plain_bytes += len(payload)
            self._sample(payload)
        self.progress.sent += 1
        self.progress.again += step.attempt > 1
        return request

    def _time_out(self, step: Sent[bytes]) -> None:
        if self._sender.timeout(step.id, step.attempt, self._clock.monotonic()):
            self.wake()

    async def _read(self, connection: Connection) -> None:
        """Take what the gateway says."""
        async for response in connection.responses():
            match response.WhichOneof("response"):
                case "ack":
                    self._take_acks(response.ack.message_ids)
                case "refused":
                    await self._take_refusals(response.refused.refusals)
                case "info":
                    self._take_info(response.info)
            self.wake()

    def _take_acks(self, ids: Any) -> None:
        now = self._clock.monotonic()
        for each in ids:
            if self._sender.ack_received(each, now):
                self._acked[each] = self._held[each].message
                self._forget(self._acked[each])

    async def _forget_acked(self) -> None:
        """Remove from the spool what was acked, and only then let the gateway forget it, too.

        If the spool cannot be written now, this is tried again with the next call.
        """
        if found := dict(self._acked):
            await self._in_thread(lambda: self._spool.acked([message.seq for message in found.values()]))
            for each in found:
                del self._acked[each]
            self._released.extend(found)
            self.progress.acked += len(found)

    async def _take_refusals(self, refusals: Any) -> None:
        for refusal in refusals:
            reason = Reason.values_by_number.get(refusal.reason)
            await self._refuse(refusal.message_id, reason.name if reason else str(refusal.reason), refusal.text[:500])

    async def _refuse(self, message_id: bytes, reason: str, text: str) -> None:
        """Take a message that no try will store out of the spool."""
        if (held := self._held.get(message_id)) is None:
            return
        await self._in_thread(lambda: self._spool.refuse(held.message.seq, reason, text))
        self._sender.drop(message_id)
        self._forget(held.message)
        self.progress.refused += 1
        log.warning("edge: message %s was refused: %s %a", message_id.hex(), reason, text)

    def _forget(self, message: Spooled) -> None:
        held = self._held.pop(message.id)
        self._held_bytes -= len(message.request)
        if held.timer is not None:
            held.timer.cancel()

    def _take_info(self, info: Any) -> None:
        if info.capacity:
            self._sender.cap = info.capacity
        if info.max_message:
            self._max_message = info.max_message
        self._draining = self._draining or info.draining
        for dictionary in info.known_dictionaries:
            self._compressor.use(dictionary)
        for dictionary in info.wanted_dictionaries:
            if content := self._compressor.content(dictionary):
                self._infos.append({"dictionary": Dictionary(id=dictionary, content=content)})
        for each in info.dropped:
            held = self._held.get(each)
            if held is not None and self._sender.dropped(each):
                held.timer.cancel()

    async def _inform(self, connection: Connection) -> None:
        """Tell the gateway what it should know: dictionaries, and ids that it may forget."""
        while self._infos:
            await connection.inform(**self._infos.popleft())
        while len(self._released) >= RELEASE_AT or (self._released and not self._sender.in_flight):
            some = [self._released.popleft() for _ in range(min(len(self._released), RELEASE_AT))]
            await connection.inform(released=some)

    def _sample(self, payload: bytes) -> None:
        if not self._settings.dictionary or self._offers or self._is_training:
            return
        self._trainer.sample(payload)
        if self._trainer.is_ready:
            self._is_training = True
            self._training = asyncio.ensure_future(self._train(self._trainer.take()))

    async def _train(self, samples: list[bytes]) -> None:
        """Train a dictionary in the background, and offer it."""
        content = await asyncio.to_thread(trained, samples)
        self._is_training = False
        if content is not None:
            await self._in_thread(lambda: self._spool.keep(DICTIONARY, content))
            self._offer(content)

    async def _load_dictionary(self) -> None:
        content = await self._in_thread(lambda: self._spool.kept(DICTIONARY))
        if content is not None and self._settings.dictionary and self._settings.compress:
            with contextlib.suppress(ConfigError):
                self._offer(content)

    def _offer(self, content: bytes) -> None:
        self._offers = [self._compressor.add(content)]
        self._infos.append({"offered_dictionaries": self._offers})
        self.wake()

    def _note(self, error: str) -> None:
        """Note why a call ended, and log it if that is news."""
        if error != self.progress.last_error:
            log.warning("edge: %s", error)
        self.progress.last_error = error

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Use the spool, in the thread that does nothing else: a disk may take its time."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


async def _first_failure(*works: Any) -> None:
    """Run these at once until one fails, and end the others. Raise its error."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result
