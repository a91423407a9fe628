"""write and write_many: check everything, then store in few round trips, each message once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shardq.codec import Codecs, encode_headers
from shardq.errors import (
    BackendError,
    ConfigError,
    DurabilityUnknown,
    OutcomeUnknown,
    PartlyWritten,
    QueueFull,
    ShardqError,
)
from shardq.model import Message, seconds
from shardq.ops.opening import opened, reopen, upkeep
from shardq.ops.persist import persist
from shardq.ops.state import Lane, QueueState
from shardq.ops.steps import Argument, Call, Op, Underreplicated
from shardq.scripts import load
from shardq.sharding import shard

CHUNK_MESSAGES = 250
CHUNK_BYTES = 4 * 1024 * 1024
MAX_DELAY = 10 * 365 * 86_400
MAX_DEDUP_KEY = 512


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A checked and encoded message. `delay` and `deadline` are ms from the write."""

    shard_key: str | bytes
    tag: str
    body: bytes
    headers: bytes = b""
    delay: int = 0
    deadline: int = 0
    dedup_key: str = ""

    @property
    def options(self) -> str:
        """The options as `write.lua` takes them."""
        if not (self.delay or self.deadline or self.dedup_key):
            return ""
        return f"{self.delay or ''}|{self.deadline or ''}|{self.dedup_key}"


class Sent(NamedTuple):
    """How one chunk went."""

    ids: list[str]
    error: ShardqError | None = None


def compose(state: QueueState, codecs: Codecs, message: Message, context: Mapping[str, str] | None = None) -> Outgoing:
    """Check and encode what the user gave; ConfigError or CodecError before anything is sent.

    *context* is the trace context; headers that the user set win over it.
    """
    shard(message.shard_key, 1, 1)
    tag, body = codecs.encode(message.payload)
    if len(body) > state.max_payload:
        raise ConfigError(
            f"the payload has {len(body):,} bytes, more than max_payload = {state.max_payload:,}: "
            "store it elsewhere and write a reference"
        )
    due = 0 if message.delay is None else _ms("delay", message.delay, 0)
    ends = 0 if message.deadline is None else max(1, _ms("deadline", message.deadline, 0.001))
    if ends and ends <= due:
        raise ConfigError("deadline must be later than delay: the message would never be delivered")
    headers = {**(context or {}), **(message.headers or {})} if message.headers is None or context else message.headers
    packed = encode_headers(headers) if headers else b""
    return Outgoing(message.shard_key, tag, body, packed, due, ends, checked_dedup_key(message.dedup_key))


def _ms(name: str, value: float, low: float) -> int:
    return round(seconds(name, value, low, MAX_DELAY) * 1000)


def checked_dedup_key(key: str | None) -> str:
    """The dedup key, '' for none; ConfigError when it is empty, not text or too long."""
    if key is None:
        return ""
    if not isinstance(key, str) or not 1 <= len(key.encode(errors="replace")) <= MAX_DEDUP_KEY:
        raise ConfigError(f"dedup_key must be text of 1 to {MAX_DEDUP_KEY} bytes")
    return key


def write(state: QueueState, message: Outgoing, timeout: float | None = None) -> Op[str]:
    """Store one message; its id."""
    until = state.until(timeout)
    yield from opened(state, until)
    sent = yield from _store(state, [message], until)
    if sent.error is not None:
        raise sent.error
    if state.config.ttl is not None:
        yield from upkeep(state, state.clock.monotonic())
    return sent.ids[0]


def write_many(state: QueueState, messages: Sequence[Outgoing], timeout: float | None = None) -> Op[list[str]]:
    """Store many messages, in order, a chunk at a time; their ids. PartlyWritten tells which went wrong."""
    until = state.until(timeout)
    yield from opened(state, until)
    results: list[str | ShardqError] = []
    failed: ShardqError | None = None
    for chunk in chunks(messages):
        sent = yield from _store(state, chunk, until)
        failed = failed or sent.error
        results += sent.ids if sent.error is None else [sent.error] * len(chunk)
    if failed is not None:
        raise PartlyWritten(results, failed) from failed
    yield from upkeep(state, state.clock.monotonic())
    return [result for result in results if isinstance(result, str)]


def chunks(messages: Sequence[Outgoing]) -> list[list[Outgoing]]:
    """Split so that no script runs long and no call grows large."""
    parts: list[list[Outgoing]] = []
    size = 0
    for message in messages:
        weight = len(message.body) + len(message.headers) + 64
        if not parts or len(parts[-1]) >= CHUNK_MESSAGES or size + weight > CHUNK_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(message)
        size += weight
    return parts


def _store(state: QueueState, chunk: list[Outgoing], until: float) -> Op[Sent]:
    """One chunk, one call, in one lane; repeated until it is known how it ended."""
    lane = state.take_lane()
    try:
        while True:
            call = _call(state, lane, chunk)
            reply = yield from persist(lambda _, call=call: call, until, state.clock)  # type: ignore[misc]
            if reply[0] == b"OK":
                return Sent(reply[1].decode().split(","))
            if reply[0] == b"EPOCH":
                state.epoch = ""
                yield from reopen(state, until)
            elif reply[0] == b"FULL":
                return Sent([], QueueFull(_full(state, reply[1].decode())))
            else:
                return Sent([], OutcomeUnknown("a later call of the same lane overtook this write"))
    except Underreplicated as few:
        ids = few.reply[1].decode().split(",")
        wanted = state.durability.replicas
        text = f"written, but {few.confirmed} of {wanted} replicas confirmed in time; a failover now could lose it"
        return Sent([], DurabilityUnknown(text, ids if len(chunk) > 1 else ids[0]))
    except BackendError as error:
        return Sent([], error)
    finally:
        state.free_lane(lane)


def _full(state: QueueState, bound: str) -> str:
    if bound == "max_len":
        return f"queue {state.keys.name!r} holds max_len = {state.config.max_len:,} messages: write later, or raise it"
    return f"queue {state.keys.name!r} remembers max_dedup = {state.config.max_dedup:,} keys: shorten dedup_window"


def _call(state: QueueState, lane: Lane, chunk: list[Outgoing]) -> Call:
    numbers, hands = _hands(state, chunk)
    keys, config = state.keys, state.config
    args: list[Argument] = [
        state.epoch,
        lane.name,
        lane.sequence,
        round(config.dedup_window * 1000),
        config.max_dedup,
        sum(1 for message in chunk if message.dedup_key),
        config.max_len,
        ",".join(map(str, numbers)),
        len(chunk),
    ]
    for message, hand in zip(chunk, hands, strict=True):
        args += (hand, message.shard_key, message.tag, message.headers, message.body, message.options)
    declared = (
        keys.meta, keys.lens, keys.ready, keys.notifications, keys.delayed, keys.later, keys.attempts, keys.dedup,
        keys.dedup_index, *map(keys.stream, numbers),
    )  # fmt: skip
    return Call(load("write"), declared, tuple(args), replicas=state.durability.replicas)


def _hands(state: QueueState, chunk: list[Outgoing]) -> tuple[list[int], list[bytes]]:
    """The streams that the chunk may use, and each message's positions among them, two bytes each."""
    if len(chunk) == 1:
        return list(state.shard(chunk[0].shard_key)), [b""]
    position: dict[int, bytes] = {}
    hands = []
    for message in chunk:
        hand = b""
        for stream in state.shard(message.shard_key):
            if stream not in position:
                position[stream] = (len(position) + 1).to_bytes(2)
            hand += position[stream]
        hands.append(hand)
    return list(position), hands
