"""One connection of an edge producer: a task reads, one stores, one answers."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final

from shardq.extras import extra

with extra("gateway"):
    import grpc
    from google.protobuf.message import DecodeError

from shardq.backoff import Exponential
from shardq.datasink import messages
from shardq.datasink.frames import BadFrame, dictionary_of
from shardq.datasink.runs import BadRuns, ids_in
from shardq.errors import QueueFull
from shardq.gateway.ahead import Ahead
from shardq.gateway.batches import Opened, WireBatch, bounds_of, ids_of
from shardq.gateway.checks import (
    CLIENT_NAME,
    MAX_IDS,
    Broken,
    RequestRefused,
    check_released,
    check_request,
    check_sizes,
    checked,
)
from shardq.gateway.counters import Counters
from shardq.gateway.memory import CONNECTION
from shardq.gateway.outbox import Outbox
from shardq.gateway.prefixes import MAX_PREFIX_BYTES
from shardq.gateway.rates import Rates
from shardq.gateway.received import Fifo, Incoming
from shardq.gateway.releases import IDS_FOR_ONE
from shardq.gateway.storing import MESSAGES_OF_CALL, StoreOutcome
from shardq.gateway.tokens import Token
from shardq.gateway.turns import cost_of

if TYPE_CHECKING:
    from shardq.gateway.server import Gateway

log = logging.getLogger("shardq.gateway")
MESSAGES_A_BATCH: Final = 250
BATCH_BYTES: Final = 1024 * 1024
IDS_AT_ONCE: Final = 500
"""Released ids that are worked off in one turn."""
MESSAGES_A_TURN: Final = 25
"""Messages of a batch that are worked off in one turn: a quarter of a millisecond."""
DICTIONARIES: Final = 2
"""Dictionaries that a connection may use at a time."""
OFFERS: Final = 16
LINGER_SECONDS: Final = 1.0
"""Seconds without anything after which a connection that drains ends, when all is answered."""
PATIENCE: Final = 1.0
"""Seconds that a client has at the end to read the answer that is being sent."""
_PAUSE = Exponential(base=0.05, factor=2, cap=2.0)
_RANDOM = Random()  # for jitter, not for security


class ProducerConnection:
    """One call of Send."""

    def __init__(self, gateway: Gateway, token: Token, context: Any, ahead: Ahead) -> None:
        self.gateway, self.token, self.context = gateway, token, context
        self.counters = Counters(connections=1)
        self.name = ""
        self._limit = self._capacity
        self._fifo = Fifo(self._limit, gateway.settings.fifo_bytes)
        self._bounds = bounds_of(gateway.settings.max_message)
        self._ahead = ahead
        self._share = gateway.memory.share(token.name)
        self._outbox = Outbox(context.write, self._news, 4 * gateway.settings.capacity + 1000, self._share)
        self._dictionaries: OrderedDict[int, Any] = OrderedDict()
        self._prefixes = gateway.prefixes.of(token.name, self._tell_news)
        self._batch: list[Incoming] = []
        self._most = MESSAGES_A_BATCH
        self._some, self._idle, self._stop = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._reason = ""
        self._releases = self._is_used = False
        self._heard = gateway.clock.monotonic()

    @property
    def max_message(self) -> int:
        """Bytes that a payload may have, after decompression."""
        most = self.gateway.settings.max_message
        return min(most, self.token.max_message or most)

    @property
    def _capacity(self) -> int:
        most = self.gateway.settings.capacity
        return min(most, self.token.capacity or most)

    @property
    def _max_ids(self) -> int:
        return self.token.max_ids or self.gateway.settings.max_ids

    def drain(self) -> None:
        """Ask the client to send no more, and end when all is answered."""
        self._outbox.tell(self._news(draining=True))
        self._end("draining")

    def renew(self, token: Token) -> None:
        """Continue with the present entry of this token in the file of tokens, and send the client its bounds."""
        self.token = token
        if self._capacity != self._limit:
            self._limit = self._fifo.capacity = self._capacity
        self._outbox.tell(self._news())

    def revoke(self) -> None:
        """End soon, because the token is not valid any more."""
        self._end("revoked")

    def _end(self, reason: str) -> None:
        self._reason = reason
        self._stop.set()

    async def run(self) -> str:
        """Serve until one side ends the call. Return why it ended; Broken if the client does not speak the protocol."""
        self.gateway.memory.take(CONNECTION)
        self._ahead.begin(self, self._share)
        self._outbox.tell(self._news())
        storing, answering = asyncio.create_task(self._store()), asyncio.create_task(self._outbox.run())
        workers = [storing, answering]
        reader, stop = asyncio.create_task(self._read()), asyncio.create_task(self._stopped())
        tasks = [*workers, reader, stop]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if reader.done() and reader.exception() is None:
                tasks.append(flush := asyncio.create_task(self._flushed()))
                await asyncio.wait([*workers, stop, flush], return_when=asyncio.FIRST_COMPLETED)
            for task in (*workers, reader, stop):
                if task.done() and (error := task.exception()) is not None:
                    if isinstance(error, grpc.aio.BaseError):  # the call is over
                        return "cut off"
                    raise error
            return self._reason or "the client ended it"
        finally:
            self.gateway.rates_of(self.token).charge_unread(self._ahead.end(self))
            self._outbox.close()
            await asyncio.wait([answering], timeout=PATIENCE)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._let_go([*self._batch, *self._fifo.batch(len(self._fifo), 1 << 62)])
            self._batch = []  # now, since what is in a circle of references is freed only some time later
            self._share.give(sum(map(_weight_of, self._dictionaries.values())))
            self._prefixes.forget()
            self.gateway.memory.give(CONNECTION)
            self.gateway.memory.trim_soon()

    async def _stopped(self) -> None:
        """Wait until the call is to be ended from this side."""
        await self._stop.wait()
        while self._reason == "draining":
            await self._flushed()
            if (rest := self._heard + LINGER_SECONDS - self.gateway.clock.monotonic()) <= 0:
                return
            await asyncio.sleep(rest)

    async def _flushed(self) -> None:
        """Wait until all received messages are settled, and the client knows it."""
        while not (self._idle.is_set() and self._outbox.emptied.is_set()):
            await self._idle.wait()
            await self._outbox.emptied.wait()

    def _news(self, *, draining: bool = False, wanted: list[int] | None = None) -> Any:
        return messages.ServiceMessage(
            capacity=self._fifo.capacity,
            max_message=self.max_message,
            max_batch_messages=self._bounds.messages,
            max_batch_bytes=self._bounds.bytes,
            max_prefix_bytes=MAX_PREFIX_BYTES,
            known_prefixes=self._prefixes.known,
            draining=draining or self.gateway.draining,
            wanted_dictionaries=wanted or [],
            known_dictionaries=list(self._dictionaries),
        )

    def _tell_news(self) -> None:
        """Tell the client what the gateway knows of it by now, and its bounds."""
        self._outbox.tell(self._news())

    # --- reading ---

    async def _read(self) -> None:
        share, turns, ahead = self._share, self.gateway.turns, self._ahead
        while True:
            if share.is_full:
                await share.room()
            ahead.asks(self)
            if (raw := await self.context.read()) is grpc.aio.EOF:
                return
            ahead.got(self, size := len(raw))
            self._heard = self.gateway.clock.monotonic()
            self.counters.bytes += size
            share.take(size)
            try:
                if not (rates := self.gateway.rates_of(self.token)).take(size):
                    await self._hold_back(rates)
                if not self._is_used:
                    self._is_used = True
                    rates.use_call()
                if not self._outbox.has_room:
                    ahead.asks(self)
                    await self._outbox.room()
                if not turns.take(cost := cost_of(1, size)):
                    await turns.wait(self.token.name, cost)
                await self._work_off(raw)
            finally:
                del raw  # else it is held until the next one has come
                share.give(size)

    async def _turn(self, cost: float) -> None:
        """Wait for a turn for work of *cost*."""
        if not self.gateway.turns.take(cost):
            await self.gateway.turns.wait(self.token.name, cost)

    async def _hold_back(self, rates: Rates) -> None:
        self.gateway.notices.say("throttled", self.token.name, f"{self.token.name} is held back by its rates")
        begun = self.gateway.clock.monotonic()
        await rates.wait()
        self.counters.throttled += self.gateway.clock.monotonic() - begun

    async def _work_off(self, raw: bytes) -> None:
        """Take one request in."""
        check_sizes(raw)
        try:
            request = messages.Request.FromString(raw)
        except DecodeError:
            raise Broken("a request is no protobuf of this service") from None
        check_request(request)
        match request.WhichOneof("payload"):
            case "info":
                await self._informed(request.info)
            case "batch":
                await self._unpack(request.batch)
            case _:
                self._receive(request)

    def _receive(self, request: Any) -> None:
        """Take one message in."""
        self.counters.received += 1
        try:
            message = checked(request, self.token, self.max_message, releases=self._releases)
        except RequestRefused as refused:
            self._refuse(request.message_id, refused)
            return
        number = dictionary_of(message.payload) if message.compressed else 0
        if self._has_dictionary(number, [message.message_id]):
            message.dictionary = self._dictionaries.get(number)
            self._enqueue(message)

    async def _unpack(self, given: Any) -> None:
        """Take the messages of a batch in. They count as this many messages of their own."""
        ids = ids_of(given, self._bounds)
        self.counters.received += len(ids)
        self._outbox.uses_runs = True
        self.gateway.rates_of(self.token).charge(len(ids) - 1)
        held = 0
        try:
            batch = WireBatch(given, ids, self._bounds)
            if not (self._has_dictionary(batch.dictionary, ids) and self._has_prefix(batch.prefix, ids)):
                return
            # On the wire it may have been a thousand times smaller.
            self.gateway.rates_of(self.token).charge_work(cost_of(0, batch.size))
            await self._turn(cost_of(0, batch.size))
            if not self._has_prefix(batch.prefix, ids):  # it gave way to others meanwhile
                return
            self._share.take(held := batch.size)
            prefix = self._prefixes.find(batch.prefix)
            members = batch.members(prefix or self._dictionaries.get(batch.dictionary))
            if given.HasField("part"):
                self._prefixes.add(given.part.at, members)
            await self._take_out(batch.opened(members, self.token, self.max_message, releases=self._releases))
        except RequestRefused as refused:
            await self._refuse_all(ids, refused)
        finally:
            self._share.give(held)

    async def _refuse_all(self, ids: list[bytes], refused: RequestRefused) -> None:
        """Refuse all messages of a batch, a few in each turn."""
        for at in range(0, len(ids), MESSAGES_A_TURN):
            await self._turn(cost_of(len(piece := ids[at : at + MESSAGES_A_TURN]), 0))
            for each in piece:
                self._refuse(each, refused)

    async def _take_out(self, opened: Opened) -> None:
        """Take the messages out of a batch, a few in each turn."""
        for at in range(0, len(opened.messages), MESSAGES_A_TURN):
            piece = opened.messages[at : at + MESSAGES_A_TURN]
            await self._turn(cost_of(len(piece), 0))
            for message_id, member in piece:
                found = opened.incoming(message_id, member)
                if isinstance(found, RequestRefused):
                    self._refuse(message_id, found)
                else:
                    self._enqueue(found)

    def _has_dictionary(self, number: int, ids: list[bytes]) -> bool:
        """Whether a frame can be decompressed that names dictionary *number*; 0 is none. If not, drop its messages."""
        if not number or number in self._dictionaries:
            return True
        self._drop(ids)  # it was evicted, or never sent: the client has it
        self._outbox.tell(self._news(wanted=[number]))
        return False

    def _has_prefix(self, number: int, ids: list[bytes]) -> bool:
        """Whether a frame can be decompressed that names prefix *number*; 0 is none. If not, drop its messages."""
        if not number or number in self._prefixes.known:
            return True
        self._drop(ids)
        self._tell_news()  # which do not name the prefix
        return False

    def _enqueue(self, message: Incoming) -> None:
        self.gateway.releases.hold(self.token.name, message.message_id)
        self._share.take(message.weight)
        capacity = self._fifo.capacity
        if dropped := self._fifo.received(message, message.weight):
            self._let_go(dropped)
            if len(self._fifo) < capacity:  # it was full by bytes: fewer messages fit
                self._fifo.capacity = max(1, len(self._fifo))
            self._drop([each.message_id for each in dropped])
        self._idle.clear()
        self._some.set()

    def _drop(self, ids: list[bytes]) -> None:
        self.counters.dropped += len(ids)
        self._outbox.drop(ids)

    def _refuse(self, message_id: bytes, refused: RequestRefused) -> None:
        self.counters.refuse(refused.reason)
        self.gateway.notices.say("refused", self.token.name, f"messages of {self.token.name} are refused: {refused}")
        self._outbox.refuse(message_id, refused.reason, str(refused))

    async def _informed(self, info: Any) -> None:
        if info.name:
            if not CLIENT_NAME.fullmatch(info.name):
                raise Broken("a name must be 1 to 100 letters, digits and . _ -")
            self.name = info.name
        self._releases = self._releases or info.releases
        await self._released(info.released)
        await self._released(_ids_of(info))
        if info.HasField("dictionary"):
            number = info.dictionary.id
            try:
                found = self.gateway.dictionaries.keep(self.token.name, number, info.dictionary.content)
            except BadFrame as bad:
                raise Broken(str(bad)) from None
            await self._adopt(number, found)
        if info.HasField("offered_prefix"):
            await self._offered_prefix(info.offered_prefix)
        if info.offered_dictionaries:
            await self._offered(list(info.offered_dictionaries[:OFFERS]))
        elif info.HasField("dictionary"):
            self._outbox.tell(self._news())

    async def _offered_prefix(self, offered: Any) -> None:
        """Let frames name a prefix whose parts were all sent. Its bytes are copied for that."""
        cost = cost_of(0, min(offered.bytes, MAX_PREFIX_BYTES))
        self.gateway.rates_of(self.token).charge_work(cost)
        await self._turn(cost)
        self._prefixes.offered(offered.number, offered.at, offered.bytes)
        self._tell_news()

    async def _released(self, ids: Sequence[bytes]) -> None:
        for at in range(0, len(ids), IDS_AT_ONCE):
            if at:
                await self._turn(cost_of(1, 0))
            some = ids[at : at + IDS_AT_ONCE]
            check_released(some)
            self.gateway.releases.released(self.token.name, some)
            self.gateway.rates_of(self.token).charge_work(len(some) / IDS_FOR_ONE)

    async def _offered(self, numbers: list[int]) -> None:
        wanted = []
        for number in dict.fromkeys(numbers[:DICTIONARIES]):
            found = self.gateway.dictionaries.find(self.token.name, number)
            if found is not None:
                await self._adopt(number, found)
            elif number not in self._dictionaries:
                wanted.append(number)
        self._outbox.tell(self._news(wanted=wanted))

    async def _adopt(self, number: int, dictionary: Any) -> None:
        """Let frames name this dictionary. Messages that wait keep the one that it replaces, so they go first."""
        if self._dictionaries.get(number) is dictionary:
            return
        if number in self._dictionaries or len(self._dictionaries) >= DICTIONARIES:
            await self._idle.wait()
            gone = number if number in self._dictionaries else next(iter(self._dictionaries))
            self._share.give(_weight_of(self._dictionaries.pop(gone)))
        self._dictionaries[number] = dictionary
        self._share.take(_weight_of(dictionary))

    # --- storing ---

    async def _store(self) -> None:
        failures = 0
        while True:
            await self._outbox.room()
            self._batch = self._batch or self._fifo.batch(MESSAGES_A_BATCH, BATCH_BYTES)
            if not self._batch:
                self._some.clear()
                self._idle.set()
                self._grow()
                await self._some.wait()
                continue
            part, rest = self._batch[: self._most], self._batch[self._most :]
            outcome = await self.gateway.storage.store(self.token.name, self._max_ids, part)
            self._batch = outcome.later + rest
            self._note(part, outcome)
            if outcome.problem is None:
                failures, self._most = 0, min(MESSAGES_A_BATCH, 2 * self._most)
                continue
            if isinstance(outcome.problem, QueueFull):  # fewer are tried again: what had room was stored
                self._most = max(1, len(outcome.later) // 2)
            failures += 1
            self.gateway.troubled(outcome.problem)
            await asyncio.sleep(_PAUSE(failures, _RANDOM))

    def _note(self, part: list[Incoming], outcome: StoreOutcome) -> None:
        """Tell the client what became of a part of the batch."""
        for queue in outcome.queues:
            self.gateway.releases.wrote(self.token.name, queue)
        if outcome.searches:
            self.gateway.rates_of(self.token).charge_work(MESSAGES_OF_CALL * outcome.searches)
        kept = {id(each) for each in outcome.later}
        self._let_go([each for each in part if id(each) not in kept])
        self.counters.stored += len(outcome.stored)
        self.counters.retried += len(outcome.later)
        if outcome.stored:
            self._outbox.ack(outcome.stored)
        for message_id, refused in outcome.refused:
            self._refuse(message_id, refused)

    def _grow(self) -> None:
        """After it was full by bytes, and is empty now, let the FIFO take more messages again."""
        if self._fifo.capacity < self._limit:
            self._fifo.capacity = min(self._limit, 2 * self._fifo.capacity)
            self._outbox.tell(self._news())

    def _let_go(self, gone: list[Incoming]) -> None:
        self.gateway.releases.let_go(self.token.name, [each.message_id for each in gone])
        self._share.give(sum(each.weight for each in gone))


def _ids_of(info: Any) -> list[bytes]:
    """Return the ids that a client has released in runs. Broken if they are not well formed, or too many."""
    try:
        return ids_in(info.released_runs, MAX_IDS)
    except BadRuns as bad:
        raise Broken(f"the released ids are not well formed: {bad}") from None


def _weight_of(dictionary: Any) -> int:
    """Return about how many bytes a dictionary takes, with the tables that are made of it."""
    return 2 * len(dictionary.dict_content) + 64 * 1024
