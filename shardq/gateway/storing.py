"""Store a batch of received messages: decompress them, group them by queue, and write each group at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from shardq.client import AsyncClient
from shardq.codec import encode_headers
from shardq.datasink.frames import BadFrame, decompressed
from shardq.errors import BackendError, ConfigError, PartlyWritten, QueueFull, QueueMissing, ShardqError
from shardq.gateway.checks import RequestRefused
from shardq.gateway.memory import STORING
from shardq.gateway.queues import Queues
from shardq.gateway.received import Incoming
from shardq.gateway.releases import dedup_key
from shardq.gateway.tenants import REMEDY
from shardq.gateway.turns import TurnPlaces, cost_of
from shardq.model import Written
from shardq.ops.queue.opening import exists, find_queue
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.topics import publish as publishing
from shardq.ops.write.outgoing import Outgoing
from shardq.ops.write.write import write_many
from shardq.partitions.over import parts_of
from shardq.partitions.writes import write_dealt

LARGE_BATCH_BYTES: Final = 128 * 1024
"""Bytes from which on a batch is decompressed in a thread, so that others are served meanwhile."""
MESSAGES_OF_CALL: Final = 10
"""The small messages that are as much work to store as a call of Redis itself."""


@dataclass(slots=True)
class StoreOutcome:
    """The outcome of a batch: ids that Redis has, refusals, and messages to try again, in their order.

    `searches` counts the queues that were looked for in Redis, and do not exist.
    """

    stored: list[bytes] = field(default_factory=list)
    refused: list[tuple[bytes, RequestRefused]] = field(default_factory=list)
    later: list[Incoming] = field(default_factory=list)
    queues: set[str] = field(default_factory=set)
    searches: int = 0
    problem: ShardqError | None = None


class _Origin(NamedTuple):
    """The sender of messages: the token's name, and how many of its ids a queue remembers."""

    name: str
    most_ids: int


@dataclass(slots=True)
class _Tried:
    """A batch that is being stored, by the identity of its messages.

    `bodies` has the body of each, or what is wrong with it. `reached` are those that some queue has. `searches` counts
    the queues that were looked for in vain.
    """

    bodies: dict[int, Any]
    reached: set[int] = field(default_factory=set)
    searches: int = 0

    def good(self, messages: Sequence[Incoming]) -> list[Incoming]:
        """Return those with nothing wrong so far."""
        return [each for each in messages if not isinstance(self.bodies[id(each)], Exception)]

    def note(self, message: Incoming, result: str | ShardqError) -> None:
        """Note what became of *message* in one queue. That this one is gone is no error where a topic has named it."""
        if not isinstance(result, ShardqError):
            self.reached.add(id(message))
        elif not (message.envelope.topic and isinstance(result, QueueMissing)):
            self.bodies[id(message)] = result


class Storage:
    """Writes messages to Redis for all connections of a gateway, the tokens in turns."""

    def __init__(self, client: AsyncClient, remember: float, router: str) -> None:
        self.client, self._remember, self._router = client, remember, router
        self.queues = Queues(client)
        self.places = TurnPlaces(STORING)

    async def store(self, name: str, most_ids: int, batch: Sequence[Incoming]) -> StoreOutcome:
        """Try once to store *batch* for the token *name*; each queue remembers *most_ids* of its ids.

        It never raises what Redis may cause.
        """
        outcome = StoreOutcome()
        size = sum(message.size for message in batch)
        calls = len({message.envelope.queue or message.envelope.topic for message in batch})
        async with self.places.place(name, cost_of(MESSAGES_OF_CALL * calls + len(batch), size), size):
            tried = _Tried(await _decompressed(batch))
            groups = await self._groups(batch, tried.bodies)
            for (queue, remember), members in groups.items():
                if await self._write(_Origin(name, most_ids), queue, remember, tried.good(members), tried):
                    outcome.queues.add(queue)
        outcome.searches = tried.searches
        for message in tried.good(batch):
            if id(message) not in tried.reached:
                tried.bodies[id(message)] = RequestRefused("NO_QUEUE", "no queue that is bound to this topic exists")
        for message in batch:
            _note(message, tried.bodies, outcome)
        return outcome

    async def _groups(
        self, batch: Sequence[Incoming], bodies: dict[int, Any]
    ) -> dict[tuple[str, float | None], list[Incoming]]:
        groups: dict[tuple[str, float | None], list[Incoming]] = {}
        for message in batch:
            if isinstance(bodies[id(message)], Exception):
                continue
            try:
                queues = await self._queues(message)
            except ShardqError as error:
                bodies[id(message)] = error
                continue
            if not queues:
                bodies[id(message)] = RequestRefused("NO_QUEUE", "no queue is bound to this topic")
            for queue in queues:
                groups.setdefault((queue, self._remember if message.releases else None), []).append(message)
        return groups

    async def _queues(self, message: Incoming) -> Sequence[str]:
        if message.envelope.queue:
            return (message.envelope.queue,)
        state = self.client.router_state(self._router)
        return await self.client.run(publishing.match_queues(state, message.envelope.topic, "return", None))

    async def _write(
        self, origin: _Origin, queue: str, remember: float | None, members: Sequence[Incoming], tried: _Tried
    ) -> bool:
        """Write *members* to *queue*, and note what became of them. Return whether some of them may be there."""
        state = self.queues.state(queue, remember)
        try:
            await self._find(state, tried)
            members = await self._allowed(state, members, tried)
            with self.client.telemetry_of(state).writing(len(members), [each.envelope for each in members]) as told:
                composed = [_outgoing(origin, each, tried.bodies[id(each)], told.context) for each in members]
                results: Sequence[str | ShardqError] = await self.client.run(_write_existing(state, composed))
                told.wrote([each for each in results if isinstance(each, str)])
        except PartlyWritten as partly:
            results = partly.results
        except ShardqError as error:
            results = [error] * len(members)
        for each, result in zip(members, results, strict=True):
            tried.note(each, result)
        missing = [each for each, result in zip(members, results, strict=True) if isinstance(result, QueueMissing)]
        is_there = any(isinstance(result, str) for result in results)
        gone = [queue] if any(each.envelope.topic for each in missing) else []
        publishing.note_gone(self.client.router_state(self._router), gone, there=[queue] if is_there else [])
        self.queues.note(state)
        return len(missing) < len(members)

    async def _allowed(self, state: QueueState, members: Sequence[Incoming], tried: _Tried) -> list[Incoming]:
        """Return those that may be written to this queue: where each shard key is a tenant, none with a made-up one."""
        made_up = [each for each in members if each.envelope.needs_parents]
        if made_up and not state.config.parents and self.queues.look_again(state.keys.name):
            await self.client.run(exists(state, state.until()))
        if made_up and not state.config.parents:
            text = f"queue {state.keys.name!r} counts each shard key as a tenant: {REMEDY}"
            tried.bodies.update((id(each), RequestRefused("NOT_ALLOWED", text)) for each in made_up)
        return tried.good(members)

    async def _find(self, state: QueueState, tried: _Tried) -> None:
        """Look a queue up that is not known. QueueMissing if Redis says, or has said a moment ago, that it is none."""
        if state.epoch:
            return
        name = state.keys.name
        if not self.queues.is_missing(name):
            if await self.client.run(find_queue(state, state.until())):
                return
            self.queues.missed(state.keys)
            tried.searches += 1
        raise QueueMissing(f"there is no queue {name!r}")


def _write_existing(state: QueueState, composed: Sequence[Outgoing]) -> Op[list[Written]]:
    """Write to a queue that exists; QueueMissing if it does not. A gateway creates none."""
    if not (yield from find_queue(state, state.until())):
        raise QueueMissing(f"there is no queue {state.keys.name!r}")
    parts = state.parts and (yield from parts_of(state))
    return (yield from write_many(state, composed) if parts is None else write_dealt(parts, composed))


def _outgoing(origin: _Origin, message: Incoming, body: bytes, context: Mapping[str, str]) -> Outgoing:
    envelope = message.envelope
    headers = envelope.headers
    try:
        packed = encode_headers({**context, **headers})
    except ConfigError:  # the trace context is one header too many
        packed = encode_headers(headers)
    key = dedup_key(origin.name, message.message_id)
    return Outgoing(envelope.shard_key, envelope.tag, body, packed, envelope.delay, 0, key, most_ids=origin.most_ids)


def _note(message: Incoming, bodies: Mapping[int, Any], outcome: StoreOutcome) -> None:
    match bodies[id(message)]:
        case RequestRefused() as refused:
            outcome.refused.append((message.message_id, refused))
        case QueueMissing() as missing:
            outcome.refused.append((message.message_id, RequestRefused("NO_QUEUE", str(missing))))
        case BadFrame() as bad:
            outcome.refused.append((message.message_id, RequestRefused("NOT_DECODABLE", str(bad))))
        case BackendError() | QueueFull() as problem:
            outcome.later.append(message)
            outcome.problem = problem
        case ConfigError() as wrong:
            outcome.refused.append((message.message_id, RequestRefused("INVALID", str(wrong))))
        case Exception() as other:
            raise other
        case _:
            outcome.stored.append(message.message_id)


async def _decompressed(batch: Sequence[Incoming]) -> dict[int, Any]:
    if sum(message.size for message in batch if message.compressed) < LARGE_BATCH_BYTES:
        return dict(_bodies(batch))
    return await asyncio.to_thread(lambda: dict(_bodies(batch)))


def _bodies(batch: Sequence[Incoming]) -> Iterator[tuple[int, Any]]:
    for message in batch:
        if not message.compressed:
            yield id(message), message.payload
            continue
        try:
            yield id(message), decompressed(message.payload, message.size, message.dictionary)
        except BadFrame as bad:
            yield id(message), bad
