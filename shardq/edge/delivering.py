"""Delivers what a spool holds: oldest first, as much at once as the window allows, until the gateway has acked it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from random import Random
from typing import Any, Final, TypeVar

from shardq.extras import extra

with extra("edge"):
    from google.protobuf.message import DecodeError

from shardq.backoff import Exponential
from shardq.clock import Clock, SystemClock
from shardq.datasink.messages import ClientInfo, Dictionary, Reason, Request
from shardq.datasink.runs import ids_in, runs_of
from shardq.edge.answers import MAX_MESSAGES
from shardq.edge.complaints import Complaints
from shardq.edge.compression import Compressor, Trainer, trained
from shardq.edge.connection import ConnectionEnded, GatewayConnection, connected
from shardq.edge.effort import Effort
from shardq.edge.file import ROWS_OF_STEP
from shardq.edge.lock import DeliveryLock
from shardq.edge.parcels import COLUMNS, Packed, Parcel, ParcelBounds, Ready, packed, request_of
from shardq.edge.places import FINAL_REASONS, TOO_LARGE, GatewayPlaces, place_of
from shardq.edge.prefixes import ProducerPrefixes
from shardq.edge.refusals import DAMAGED
from shardq.edge.settings import EdgeSettings
from shardq.edge.spool import Spool, Spooled, SpoolHold
from shardq.edge.under_way import UnderWay
from shardq.errors import ConfigError, ShardqError, SpoolFull
from shardq.flow import Limit, Sender, Sent, Vegas
from shardq.timing import LoopTimer

log = logging.getLogger("shardq")
T = TypeVar("T")

POLL_INTERVAL: Final = 0.2
"""Seconds after which the spool is looked into for what other processes have put."""
TAKE_OVER: Final = 0.5
"""Seconds after which it is tried again to become the process that delivers."""
EXPIRE: Final = 5.0
"""Seconds between two looks for messages that were held too long."""
CHECK: Final = 5.0
"""Seconds between two looks through the file when it holds fewer messages than it should."""
MAX_ACKED: Final = 100_000
"""Acks that are noted in memory while the spool cannot be written; then no more messages go out."""
ROWS_A_PAGE: Final = 500
UNKNOWN: Final = "UNKNOWN_REASON"
"""The name of all reasons that this version does not know, since each has a line in the log."""
CROWDED: Final = 4
"""While a window is the limit, a batch goes out when so large a share of it is free: a fourth."""
RELEASE_AT: Final = 200
"""Ids whose acks are noted that are sent to the gateway at once, or fewer after a while."""
LARGE_BYTES: Final = 16 * 1024
"""Bytes that are compressed in a thread: it takes a tenth of a millisecond or more, and a change of threads less."""
PAUSE = Exponential(base=0.1, factor=2, cap=30.0)
DICTIONARY: Final = "dictionary"


def _limit() -> Limit:
    """Return how many messages may be in flight. A gateway stores at once what waits, so more than a few should wait.

    A batch should wait while one is being stored. A producer with a backlog gains nothing by acks that come sooner, and
    what the link does not take yet waits in the spool.
    """
    return Vegas(low=250, high=500)


@dataclass(slots=True)
class Progress:
    """The state of the delivery. Only the delivery changes it.

    `Edge.status` returns one. `state` is one word for it, and `last_error` says why it was interrupted last.
    `in_flight` messages are sent and not answered, and `window` is how many may be. Since the process began `sent` were
    sent, `again` of them once more; `acked`, `refused` and `held` are the answers. `connections` were made.
    `plain_bytes` of payloads became `frame_bytes` by compression.
    """

    state: str = "starting"
    last_error: str = ""
    in_flight: int = 0
    window: int = 0
    sent: int = 0
    acked: int = 0
    again: int = 0
    refused: int = 0
    held: int = 0
    connections: int = 0
    plain_bytes: int = 0
    frame_bytes: int = 0


class Delivering:
    """One process's delivery of a spool. `run` continues until it is cancelled; all else is for its event loop only."""

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
        self._ready: dict[bytes, Ready] = {}
        self._ready_bytes, self._last_seq = 0, 0
        self._resent: int | None = None
        self._places, self._opened = GatewayPlaces(self._random), set[str]()
        self._complaints, self._expires_at, self._checks_at = Complaints(), -math.inf, -math.inf
        self._released: deque[bytes] = deque()
        self._infos: deque[dict[str, Any]] = deque()
        self._compressor, self._trainer = Compressor(), Trainer()
        self._effort, self._prefixes, self._under_way = (
            Effort(settings.level),
            ProducerPrefixes(self._clock),
            UnderWay(),
        )
        self._training: asyncio.Task[None] | None = None
        self._offers: list[int] = []
        self._acked: dict[bytes, int] = {}  # and not removed from the spool yet
        self._woken = asyncio.Event()
        self._draining, self._max_message, self._bounds = False, 2**63, ParcelBounds()
        self._pool = ThreadPoolExecutor(1, "shardq-edge-work")
        self.progress = Progress()

    async def run(self) -> None:
        """Deliver until cancelled.

        Nothing else ends it: an error that nobody thought of is logged, and all is tried again.
        """
        self._timer = LoopTimer(asyncio.get_running_loop(), clock=self._clock)
        failures = 0
        try:
            while True:
                try:
                    if not self._lock.take():
                        self.progress.state = "another process delivers"
                        await asyncio.sleep(TAKE_OVER)
                        continue
                    failures = 0 if await self._one_call() else failures + 1
                except Exception as error:  # noqa: BLE001 - messages would be accepted, and never go out
                    failures += 1
                    self._note(_told(error))
                _check_cancelled()
                self.progress.state = "waiting to connect again"
                await asyncio.sleep(PAUSE(max(1, failures), self._random))
        finally:
            if self._training is not None:
                self._training.cancel()  # it would store what it has found
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
        await self._begin()
        info = ClientInfo(name=self._settings.name, releases=True, offered_dictionaries=self._offers)
        try:
            async with connected(self._settings, info) as connection:
                self.progress.state, self.progress.last_error = "connected", ""
                self.progress.connections += 1
                self._draining, self._bounds = False, ParcelBounds()
                self._prefixes = ProducerPrefixes(self._clock, connection.welcome.max_prefix_bytes)
                self._under_way = UnderWay()
                self._take_info(connection.welcome)
                await _first_failure(self._read(connection), self._send(connection))
        except (ShardqError, OSError) as error:  # of the call, or of the spool, as when the disk is full: tried again
            self._note(str(error))
        finally:
            for ready in self._ready.values():
                ready.leave()
            self._sender.lost(self._clock.monotonic())
            self._compressor.use(None)
        return self.progress.acked > before

    async def _begin(self) -> None:
        """Before a call: take over what is in the spool besides the messages."""
        if not self._offers:
            await self._load_dictionary()
        held = await self._in_thread(self._spool.held)
        self._places.start((each.place for each in held), self._clock.monotonic())

    async def _send(self, connection: GatewayConnection) -> None:
        """Send what there is, as the window allows."""
        while True:
            self._woken.clear()
            is_noted = await self._forget_acked()
            await self._inform(connection)
            await self._ask()
            has_more = await self._fill()
            while not self._draining and (steps := self._together()):
                if (request := await self._request(steps)) is not None:
                    begun = self._clock.monotonic()
                    await connection.send(request, len(steps))
                    self._effort.waited(self._clock.monotonic() - begun)
                    self._effort.look(self._clock.monotonic())
            self.progress.in_flight, self.progress.window = self._sender.in_flight, self._sender.window
            if self._sender.upcoming is None:  # a span in which only acks are waited for says nothing of a slow link
                self._effort.look(self._clock.monotonic())
            if self._draining and not self._sender.in_flight:
                raise ConnectionEnded(f"the gateway {self._settings.gateway} is being stopped")
            if (has_more and self._sender.credit) or (self._acked and is_noted) or self._opened:
                continue
            await self._tidy()
            begun, waits_for_link = self._clock.monotonic(), self._sender.upcoming is not None and self._waits_for_link
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_INTERVAL):
                    await self._woken.wait()
            if waits_for_link:
                self._effort.waited(self._clock.monotonic() - begun)

    async def _fill(self) -> bool:
        """Take messages from the spool ahead of the window. Return whether there may be more."""
        room = self._settings.in_memory - self._ready_bytes
        waiting = len(self._sender) - self._sender.in_flight
        if self._draining or waiting >= ROWS_A_PAGE or (room <= 0 and self._ready) or len(self._acked) > MAX_ACKED:
            return False
        page = await self._in_thread(lambda: self._spool.after(self._last_seq, ROWS_A_PAGE, max(room, 1)))
        for message in page.messages:
            self._last_seq = message.seq
            self._take(message)
        before, self._resent = self._resent, page.resent
        if before not in (None, page.resent):  # refused ones wait again, under the numbers that they had
            self._last_seq = 0
            return True
        if not page.messages and page.goes_out and not self._ready and not self._acked:
            await self._look_again()
        return bool(page.messages)

    def _take(self, message: Spooled, asks_for: str = "") -> None:
        """Let a message go out, if it does not already."""
        if message.id in self._acked:  # and not removed yet
            if asks_for:
                self._opened.add(asks_for)
            return
        if (ready := self._ready.get(message.id)) is not None:
            ready.asks_for = ready.asks_for or asks_for
            return
        self._ready[message.id] = Ready(message, asks_for)
        self._ready_bytes += len(message.request)
        self._sender.send(message.id)

    async def _look_again(self) -> None:
        """There should be messages that go out, and none was found: begin again, and look for damage."""
        self._last_seq = 0
        if self._clock.monotonic() >= self._checks_at:
            self._checks_at = self._clock.monotonic() + CHECK
            if not (await self._in_thread(lambda: self._spool.after(0, 1, 1))).messages:
                await self._in_thread(self._spool.check)

    async def _tidy(self) -> None:
        """While there is time: give room back to the disk, and give up what was held too long."""
        now = self._clock.monotonic()
        self._complaints.tell(now)
        with contextlib.suppress(SpoolFull):  # it is tried again
            if not self._ready and not self._acked:
                while await self._in_thread(self._spool.shrink):
                    pass
            if self._places and now >= self._expires_at:
                self._expires_at = now + EXPIRE
                before = self._clock.wall() - self._settings.hold
                while count := await self._in_thread(lambda: self._spool.expire(before)):
                    self.progress.refused += count
                    self._complain("held too long, and refused", f"{count} at once; `shardq edge refused` shows them")

    async def _ask(self) -> None:
        """Let what was held go out where its place is open again, and ask for places where it is time."""
        while self._opened:
            place = self._opened.pop()
            self._places.opened(place)
            self._last_seq = 0  # what is released goes out, though the rest may fail
            while await self._in_thread(partial(self._spool.release, place)):
                pass
        if self._draining:
            return
        for place in self._places.due(self._clock.monotonic()):
            message = await self._in_thread(partial(self._spool.first_held, place))
            if message is None:
                self._opened.add(place)
            else:
                self._take(message, place)

    def _together(self) -> list[Sent[bytes]]:
        """Let out what goes into one request: what waits, as far as the window and the gateway allow."""
        now, size, steps = self._clock.monotonic(), COLUMNS, list[Sent[bytes]]()
        if self._waits_for_link or (self._bounds.takes_batches and self._is_crowded()):
            return steps
        while (upcoming := self._sender.upcoming) is not None:
            ready = self._ready[upcoming]
            size += len(ready.message.request)  # which is more than it takes in a batch
            if steps and (len(steps) >= self._bounds.messages or size > self._bounds.bytes or ready.is_plain):
                break
            if (step := self._sender.next(now)) is None:
                break
            steps.append(step)
            if ready.is_plain:
                break
        return steps

    @property
    def _waits_for_link(self) -> bool:
        """Whether as much is under way as should be while prefixes are in use."""
        return self._effort.uses_prefix and self._prefixes.most > 0 and self._under_way.is_full

    def _is_crowded(self) -> bool:
        """Whether more waits than the window has room for, and that is little: after some acks more will go together.

        Else each ack would let a small batch out. TCP waits for the same reason (RFC 813, the silly window syndrome).
        """
        room = self._sender.window - self._sender.in_flight
        return room < self._sender.window // CROWDED and room < len(self._sender) - self._sender.in_flight

    async def _request(self, steps: list[Sent[bytes]]) -> Any:
        """The request of messages whose turn it is; None if none of them can go out."""
        good, damaged, large = list[tuple[Ready, Any]](), list[tuple[Ready, str, str]](), list[tuple[Ready, str, str]]()
        for step in steps:
            ready = self._ready[step.id]
            try:
                request = Request.FromString(ready.message.request)
            except DecodeError:
                damaged.append((ready, DAMAGED, "it is no request"))
                continue
            if (size := len(request.plain_message)) > self._max_message:  # the gateway might end the call, each time
                text = f"the payload has {size:,} bytes, more than {self._max_message:,}"
                large.append((ready, TOO_LARGE, text))
                continue
            good.append((ready, request))
        found = await self._prepared(steps, good) if good else None
        await self._refuse(damaged)
        await self._hold(large)
        return found

    async def _prepared(self, steps: list[Sent[bytes]], parcel: list[tuple[Ready, Any]]) -> Any:
        """The request of messages that go out now, compressed if that helps, with the timer started."""
        timer = self._timer.call_later(steps[0].timeout, self._time_out, steps)
        size = COLUMNS + sum(len(ready.message.request) for ready, _ in parcel)
        together = Parcel(len(parcel), timer, size, self._clock.monotonic())
        requests = [request for _, request in parcel]
        self._under_way.sent(together)
        for ready, _ in parcel:  # now, since acks of earlier tries may come while this one is compressed
            ready.parcel = together
        packs = self._packs(requests, size, is_plain=parcel[0][0].is_plain)
        begun = self._clock.monotonic()
        # In a thread if it takes long, since the loop may be a user's.
        made = packs() if size < LARGE_BYTES else await self._in_thread(packs)
        if self._settings.compress:
            self._effort.spent(self._clock.monotonic() - begun)
            self._count(made, requests)
        for ready, _ in parcel:
            ready.frames += made.frame is not None or made.is_batch
        self.progress.sent += len(parcel)
        self.progress.again += sum(step.attempt > 1 for step in steps)
        is_part = made.is_batch and self._effort.uses_prefix
        return request_of(requests, made, self._prefixes.part(made.content) if is_part else None)

    def _packs(self, requests: list[Any], size: int, *, is_plain: bool) -> Callable[[], Packed]:
        """Return what makes the frame of messages of *size* bytes in all, with what is in use now."""
        self._compressor.level = self._effort.level
        uses_prefix = self._effort.uses_prefix and self._prefixes.most > 0 and size <= self._bounds.bytes
        is_batch = len(requests) > 1 or (uses_prefix and not is_plain)
        if is_plain or not self._settings.compress:
            return partial(packed, requests, None, is_batch=is_batch)
        prefix = self._prefixes.use if uses_prefix else None
        return partial(packed, requests, self._compressor, prefix, is_batch=is_batch, is_hard=self._effort.is_hard)

    def _count(self, made: Packed, requests: list[Any]) -> None:
        """Note what a frame has saved, and learn from its messages."""
        self.progress.frame_bytes += len(made.frame or made.content)
        self.progress.plain_bytes += sum(len(each.plain_message) for each in requests)
        for each in requests:
            self._sample(each.plain_message)

    def _time_out(self, steps: list[Sent[bytes]]) -> None:
        now = self._clock.monotonic()
        for step in steps:
            if self._sender.timeout(step.id, step.attempt, now):
                self._ready[step.id].leave()
                self.wake()

    async def _read(self, connection: GatewayConnection) -> None:
        """Take what the gateway says."""
        async for response in connection.responses():
            match response.WhichOneof("response"):
                case "ack":
                    self._take_acks([*response.ack.message_ids, *ids_in(response.ack.runs, MAX_MESSAGES)])
                case "refused":
                    await self._take_refusals(response.refused.refusals)
                case "info":
                    self._take_info(response.info)
            self.wake()

    def _take_acks(self, ids: Any) -> None:
        now = self._clock.monotonic()
        for each in ids:
            if each in self._ready and self._sender.ack_received(each, now):
                ready = self._ready[each]
                if ready.parcel is not None:
                    self._under_way.acked(ready.parcel, now)
                self._acked[each] = ready.message.seq
                self._answered(ready)
                self._forget(ready)

    async def _forget_acked(self) -> bool:
        """Remove from the spool what was acked, and only then let the gateway forget it, too.

        Return False if the spool cannot be written now: messages go out anyway, and this is tried again.
        """
        if not (found := dict(islice(self._acked.items(), ROWS_OF_STEP))):
            return True
        try:
            gone = await self._in_thread(lambda: self._spool.acked(found.values()))
        except SpoolFull as error:
            self._note(str(error))
            return False
        for each, seq in found.items():
            del self._acked[each]
            if seq in gone:
                self._released.append(each)
        self.progress.acked += len(found)
        return True

    async def _take_refusals(self, refusals: Any) -> None:
        held, refused = list[tuple[Ready, str, str]](), list[tuple[Ready, str, str]]()
        for each in {refusal.message_id: refusal for refusal in refusals}.values():
            if (ready := self._ready.get(each.message_id)) is None:
                continue
            found = Reason.values_by_number.get(each.reason)
            reason, text = (found.name, each.text[:500]) if found else (UNKNOWN, f"{each.reason}: {each.text[:500]}")
            if reason == "NOT_DECODABLE" and ready.frames:
                # A frame whose payload is too large for this gateway by now is refused so, too. Sent as it is, the
                # payload gets the true reason.
                ready.frames -= 1
                if not ready.is_plain:
                    ready.is_plain = True
                    self._again(each.message_id)
            else:
                (refused if reason in FINAL_REASONS else held).append((ready, reason, text))
        await self._hold(held)
        await self._refuse(refused)

    async def _hold(self, holds: list[tuple[Ready, str, str]]) -> None:
        """Let messages wait that the gateway does not take for now. Others continue meanwhile."""
        if not holds:
            return
        now, found = self._clock.monotonic(), list[SpoolHold]()
        for ready, reason, text in holds:
            request = Request.FromString(ready.message.request)
            place = place_of(request, reason)
            found.append(SpoolHold(ready.message.seq, place, len(request.plain_message), reason, text))
            if ready.asks_for == place:
                self._places.failed(place, now)
            else:
                self._answered(ready)
                self._places.add(place, now)
            self._complain(f"held, since the gateway does not take them now: {reason}", _about(ready, text))
        with contextlib.suppress(SpoolFull):  # then they go out again with the first that is taken
            await self._in_thread(lambda: self._spool.hold(found))
        for ready, _, _ in holds:
            self._drop(ready)
        self.progress.held += len(holds)

    async def _refuse(self, refusals: list[tuple[Ready, str, str]]) -> None:
        """Take messages that no try will store out of the spool."""
        if not refusals:
            return
        found = [(ready.message.seq, reason, text) for ready, reason, text in refusals]
        await self._in_thread(lambda: self._spool.refuse(found))
        for ready, reason, text in refusals:
            self._answered(ready)
            self._drop(ready)
            self._complain(f"refused for good: {reason}", _about(ready, text))
        self.progress.refused += len(refusals)

    def _answered(self, ready: Ready) -> None:
        """The place for which a message asked is not closed to this one any more: the others follow."""
        if ready.asks_for:
            self._opened.add(ready.asks_for)

    def _complain(self, kind: str, text: str) -> None:
        self._complaints.note(kind, text, self._clock.monotonic())

    def _drop(self, ready: Ready) -> None:
        self._sender.drop(ready.message.id)
        if ready.message.id in self._ready:
            self._forget(ready)

    def _forget(self, ready: Ready) -> None:
        del self._ready[ready.message.id]
        self._ready_bytes -= len(ready.message.request)
        ready.leave()

    def _again(self, message_id: bytes) -> None:
        """Send a message that is in flight once more."""
        ready = self._ready.get(message_id)
        if ready is not None and self._sender.dropped(message_id):
            ready.leave()

    def _take_info(self, info: Any) -> None:
        if info.capacity:
            self._sender.cap = info.capacity
        if info.max_batch_messages:
            self._bounds = ParcelBounds.told(info)
        if info.max_message and info.max_message != self._max_message:
            self._max_message = info.max_message
            self._places.raised(self._clock.monotonic())
        self._draining = self._draining or info.draining
        for dictionary in info.known_dictionaries:
            self._compressor.use(dictionary)
        self._prefixes.told(info.known_prefixes)
        for dictionary in info.wanted_dictionaries:
            if content := self._compressor.content(dictionary):
                wanted = {"dictionary": Dictionary(id=dictionary, content=content)}
                if wanted not in self._infos:  # however often a gateway asks before it is sent
                    self._infos.append(wanted)
        for each in info.dropped:
            self._again(each)

    async def _inform(self, connection: GatewayConnection) -> None:
        """Tell the gateway what it should know: dictionaries, and ids that it may forget."""
        while self._infos:
            await connection.inform(**self._infos.popleft())
        if (offer := self._prefixes.offer()) is not None:
            await connection.inform(offered_prefix=offer)
        while len(self._released) >= RELEASE_AT or (self._released and not self._sender.in_flight):
            some = [self._released.popleft() for _ in range(min(len(self._released), RELEASE_AT))]
            named = {"released_runs": runs_of(some)} if self._bounds.takes_batches else {"released": some}
            await connection.inform(**named)

    def _sample(self, payload: bytes) -> None:
        if not self._settings.dictionary or self._offers or self._training is not None:
            return
        self._trainer.sample(payload)
        if self._trainer.is_ready:
            self._training = asyncio.create_task(self._train(self._trainer.take()))

    async def _train(self, samples: list[bytes]) -> None:
        """Train a dictionary in the background, and offer it."""
        content = await asyncio.to_thread(trained, samples)
        self._training = None
        if content is not None:
            with contextlib.suppress(ShardqError):  # without room in the spool it lasts as long as this process
                await self._in_thread(lambda: self._spool.keep(DICTIONARY, content))
            self._offer(content)

    async def _load_dictionary(self) -> None:
        if not (self._settings.dictionary and self._settings.compress):
            return
        content = await self._in_thread(lambda: self._spool.kept(DICTIONARY))
        if content is not None:
            with contextlib.suppress(ConfigError):  # it is damaged: a new one is trained, and takes its place
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
        """Use the spool, or compress, in a thread beside the loop: a disk may take its time, and so may zstd."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _told(error: Exception) -> str:
    """The text of an error: for one that nobody thought of, also where it was raised."""
    if isinstance(error, ShardqError | OSError):
        return str(error)
    (*_, frame) = traceback.extract_tb(error.__traceback__)
    return f"unexpected {type(error).__name__} in {frame.name}, line {frame.lineno}: {str(error)[:200]!a}"


def _check_cancelled() -> None:
    """CancelledError if this task was cancelled. gRPC hides that if the call ends by itself in the same moment."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _about(ready: Ready, text: str) -> str:
    return f"{ready.message.id.hex()} ({text!a})"


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
