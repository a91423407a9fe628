"""One connection of an edge producer: a task reads, one stores, one answers."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from random import Random
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf.message import DecodeError

from shardq.backoff import Exponential
from shardq.datasink import messages
from shardq.datasink.frames import BadFrame, dictionary_of
from shardq.errors import QueueFull
from shardq.gateway.checks import CLIENT_NAME, MAX_ID, Broken, Refused, check_request, checked
from shardq.gateway.counters import Counters
from shardq.gateway.outbox import Outbox
from shardq.gateway.received import Fifo, Incoming
from shardq.gateway.storing import Outcome
from shardq.gateway.tokens import Token

if TYPE_CHECKING:
    from shardq.gateway.server import Gateway

log = logging.getLogger("shardq.gateway")
BATCH: Final = 250
BATCH_BYTES: Final = 4 * 1024 * 1024
DICTIONARIES: Final = 2
"""A connection may use so many dictionaries at a time."""
OFFERS: Final = 16
LINGER: Final = 1.0
"""A connection that drains ends when all is answered and nothing has come for so many seconds."""
PATIENCE: Final = 1.0
"""At the end a client has so many seconds to read the answer that is being sent."""
_PAUSE = Exponential(base=0.05, factor=2, cap=2.0)
_RANDOM = Random()  # for jitter, not for security


class Connection:
    """One call of Send. `token` is replaced when the file of tokens was read anew."""

    def __init__(self, gateway: Gateway, token: Token, context: Any) -> None:
        self.gateway, self.token, self.context = gateway, token, context
        self.counters = Counters(connections=1)
        self.name = ""
        settings = gateway.settings
        self._limit = min(settings.capacity, token.capacity or settings.capacity)
        self._fifo = Fifo(self._limit, settings.fifo_bytes)
        self._outbox = Outbox(context.write, self._news, 4 * self._limit + 1000)
        self._dictionaries: OrderedDict[int, Any] = OrderedDict()
        self._batch: list[Incoming] = []
        self._most = BATCH
        self._some, self._idle, self._stop = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._reason = ""
        self._releases = False
        self._heard = gateway.clock.monotonic()

    @property
    def max_message(self) -> int:
        """Bytes that a payload may have, after decompression."""
        most = self.gateway.settings.max_message
        return min(most, self.token.max_message or most)

    def drain(self) -> None:
        """Ask the client to send no more, and end when all is answered."""
        self._outbox.tell(self._news(draining=True))
        self._end("draining")

    def revoke(self) -> None:
        """End soon, because the token is not valid any more."""
        self._end("revoked")

    def _end(self, reason: str) -> None:
        self._reason = reason
        self._stop.set()

    async def run(self) -> str:
        """Serve until one side ends the call. Return why it ended; Broken if the client does not speak the protocol."""
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
            self._outbox.close()
            await asyncio.wait([answering], timeout=PATIENCE)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._let_go([*self._batch, *self._fifo.batch(len(self._fifo), 1 << 62)])

    async def _stopped(self) -> None:
        """Wait until the call is to be ended from this side."""
        await self._stop.wait()
        while self._reason == "draining":
            await self._flushed()
            if (rest := self._heard + LINGER - self.gateway.clock.monotonic()) <= 0:
                return
            await asyncio.sleep(rest)

    async def _flushed(self) -> None:
        """Wait until all that was received is settled, and the client was told."""
        while not (self._idle.is_set() and self._outbox.emptied.is_set()):
            await self._idle.wait()
            await self._outbox.emptied.wait()

    def _news(self, *, draining: bool = False, wanted: list[int] | None = None) -> Any:
        return messages.ServiceMessage(
            capacity=self._fifo.capacity,
            max_message=self.max_message,
            draining=draining or self.gateway.draining,
            wanted_dictionaries=wanted or [],
            known_dictionaries=list(self._dictionaries),
        )

    # --- reading ---

    async def _read(self) -> None:
        while (raw := await self.context.read()) is not grpc.aio.EOF:
            self._heard = self.gateway.clock.monotonic()
            self.counters.bytes += len(raw)
            if (wait := self.gateway.rates_of(self.token).take(len(raw))) > 0:
                await asyncio.sleep(wait)
            await self._outbox.room()
            try:
                request = messages.Request.FromString(raw)
            except DecodeError:
                raise Broken("a request is no protobuf of this service") from None
            check_request(request)
            if request.WhichOneof("payload") == "info":
                await self._informed(request.info)
            else:
                self._received(request)

    def _received(self, request: Any) -> None:
        self.counters.received += 1
        try:
            message = checked(request, self.token, self.max_message, releases=self._releases)
        except Refused as refused:
            self._refuse(request.message_id, refused)
            return
        if message.compressed and (number := dictionary_of(message.payload)):
            message.dictionary = self._dictionaries.get(number)
            if message.dictionary is None:  # evicted, or never sent: the client has it
                self._drop([message.message_id])
                self._outbox.tell(self._news(wanted=[number]))
                return
        self.gateway.releases.hold(self.token.name, message.message_id)
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

    def _refuse(self, message_id: bytes, refused: Refused) -> None:
        self.counters.refused += 1
        self._outbox.refuse(message_id, refused.reason, str(refused))

    async def _informed(self, info: Any) -> None:
        if info.name:
            if not CLIENT_NAME.fullmatch(info.name):
                raise Broken("a name must be 1 to 100 letters, digits and . _ -")
            self.name = info.name
        self._releases = self._releases or info.releases
        if not all(1 <= len(each) <= MAX_ID for each in info.released):
            raise Broken(f"a released id must have 1 to {MAX_ID} bytes")
        self.gateway.releases.released(self.token.name, info.released)
        if info.HasField("dictionary"):
            number = info.dictionary.id
            try:
                found = self.gateway.dictionaries.keep(self.token.name, number, info.dictionary.content)
            except BadFrame as bad:
                raise Broken(str(bad)) from None
            await self._adopt(number, found)
        if info.offered_dictionaries:
            await self._offered(list(info.offered_dictionaries[:OFFERS]))
        elif info.HasField("dictionary"):
            self._outbox.tell(self._news())

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
            if self._dictionaries.pop(number, None) is None:
                self._dictionaries.popitem(last=False)
        self._dictionaries[number] = dictionary

    # --- storing ---

    async def _store(self) -> None:
        failures = 0
        while True:
            await self._outbox.room()
            self._batch = self._batch or self._fifo.batch(BATCH, BATCH_BYTES)
            if not self._batch:
                self._some.clear()
                self._idle.set()
                self._grow()
                await self._some.wait()
                continue
            part, rest = self._batch[: self._most], self._batch[self._most :]
            outcome = await self.gateway.storage.store(self.token.name, part)
            self._batch = outcome.later + rest
            self._note(part, outcome)
            if outcome.problem is None:
                failures, self._most = 0, min(BATCH, 2 * self._most)
                continue
            if isinstance(outcome.problem, QueueFull):  # fewer are tried again: what had room was stored
                self._most = max(1, len(outcome.later) // 2)
            failures += 1
            self.gateway.troubled(outcome.problem)
            await asyncio.sleep(_PAUSE(failures, _RANDOM))

    def _note(self, part: list[Incoming], outcome: Outcome) -> None:
        """Tell the client what became of a part of the batch."""
        for queue in outcome.queues:
            self.gateway.releases.wrote(self.token.name, queue)
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
