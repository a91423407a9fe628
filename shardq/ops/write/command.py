"""The call of write.lua: for many messages, and for one message its bytes alone.

Words that are packed once are used again. In a large batch only the payload of a message is new: the positions of its
streams, the shard key and the tag are the same for all messages of the shard key, and to pack them for each took longer
than all else that a client does for such a message.

A `Call` of one message has some forty words, for each shard key others. That is much memory, and little of it is in the
processor's caches when the server has answered the call before. To touch it took a client longer than all else that a
single write does, so the bytes of a single write are put together from words that all of them share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from shardq.ops.queue.numbered import number_of
from shardq.ops.queue.sequences import ProducerSequence
from shardq.ops.queue.state import FewKeys, QueueState
from shardq.ops.queue.steps import Argument, Call
from shardq.ops.queue.view import QueueView
from shardq.ops.write.outgoing import Outgoing
from shardq.protocol.keys import QueueKeys
from shardq.protocol.packing import PACKED_KEYS, pack_words
from shardq.protocol.script import FUNCTION, HASH, Form

BYTE_POSITIONS = 255
"""With up to this many declared streams, a position takes one byte; with more, two."""

MIN_PACKED_WRITE = 8
"""Cached, already packed words pay off from this many messages on."""

CACHED_SHARDS = 4096
"""Shard keys whose common parts of messages are kept: 0.9 MB at most, as tenants choose them."""

WORDS = 4
"""Words of a plain message: positions, shard key, tag, payload."""


_NEXT = bytes([*range(1, 256), 0])


@dataclass(slots=True)
class WriteMany(Call):
    """A `Call` whose last words, those of the messages, are packed already."""

    last: bytes = b""
    messages: int = 0

    def request(self, form: Form) -> bytes:
        """Return the bytes of the command, the same as those of any call with these words."""
        words = WORDS * self.messages
        return self.packed(form, self.args[: len(self.args) - words], self.last, words)


class _Lengths(dict[int, bytes]):
    """The RESP header of a word of this length."""

    def __missing__(self, length: int) -> bytes:
        """Make it. There are few lengths in most batches."""
        if len(self) >= CACHED_SHARDS:
            self.clear()
        head = self[length] = b"$%d\r\n" % length
        return head


_LENGTHS = _Lengths()


def pack_messages(
    view: QueueView, positions: Sequence[bytes], keys: Sequence[str | bytes], tag: str, bodies: Sequence[bytes]
) -> bytes:
    """Return the packed words of messages with one *tag*. The *positions* must be those that their keys always have."""
    heads = _heads(view, positions, keys, tag)
    parts = [b"\r\n"] * (WORDS * len(bodies))
    parts[0::4] = heads
    parts[1::4] = [_LENGTHS[length] for length in map(len, bodies)]
    parts[2::4] = bodies
    return b"".join(parts)


def _heads(view: QueueView, positions: Sequence[bytes], keys: Sequence[str | bytes], tag: str) -> Sequence[bytes]:
    """Return for each message its words before the payload. They are cached, since a view does not change."""
    known = view.heads_cache.get(tag)
    if known is None or len(known) > CACHED_SHARDS:
        known = view.heads_cache[tag] = {}
    try:
        return [known[key] for key in keys]
    except KeyError:
        last = word_of(tag.encode())
        for own, key in zip(positions, keys, strict=True):
            if key not in known:
                raw = key if isinstance(key, bytes) else key.encode()
                known[key] = b"$%d\r\n%b\r\n$%d\r\n%b\r\n%b" % (len(own), own, len(raw), raw, last)
        return [known[key] for key in keys]


def word_of(raw: bytes) -> bytes:
    """Return a word of a command as it is sent."""
    return b"$%d\r\n%b\r\n" % (len(raw), raw)


class StreamWords(dict[int, bytes]):
    """The word for each stream that was asked for: its key."""

    def __init__(self, keys: QueueKeys) -> None:
        self._keys = keys

    def __missing__(self, stream: int) -> bytes:
        """Make it."""
        word = self[stream] = PACKED_KEYS[self._keys.stream(stream)]
        return word


class WriteKind(NamedTuple):
    """The common part of writes of one message that share `WriteWords`.

    They declare as many streams, all or none have headers or options, and all or none declare few keys.
    """

    declared: int
    has_more: bool
    is_few: bool


class WriteWords(NamedTuple):
    """The words of all writes of one kind.

    `start` comes first, or `start_by_hash` where the script is sent by its hash; then the keys of the `streams`, and
    one word with the producer sequence behind `before`. `positions` come next, if all writes have the same.
    """

    start: bytes
    start_by_hash: bytes
    before: bytes
    streams: StreamWords
    positions: bytes


class LoneWrite:
    """The bytes of a call for one message (see `Sendable`). The `call` itself is made if it is needed."""

    __slots__ = ("_call", "_few", "_message", "_number", "_state", "_view", "key", "sequence", "shard_keys", "until")

    on_send = None
    replicas = 0

    def __init__(
        self, state: QueueState, view: QueueView, message: Outgoing, sequence: ProducerSequence, until: float
    ) -> None:
        self._state, self._view, self._message, self.sequence, self.until = state, view, message, sequence, until
        self.key, self.shard_keys = state.keys.meta, (message.shard_key,)
        self._number = number_of(state, sequence, until)
        few = state.few["write"]
        # Apart from the streams, and where a producer's end moves, a write touches more keys.
        needs_all = sequence.moves or message.delay or message.dedup_key or message.unique_key
        self._few = None if needs_all or (few.lacking and few.lacked()) else few
        self._call: Call | None = None

    def request(self, form: Form) -> bytes:
        """Return the bytes of the command in this form."""
        view, message = self._view, self._message
        shard_key, tag, body = message.shard_key, message.tag, message.body
        streams = view.shards[shard_key]
        chooses_all = view.wanted <= min(BYTE_POSITIONS, view.config.streams_per_shard)
        declared: Sequence[int] = range(view.wanted) if chooses_all else streams
        is_plain = not (message.headers or message.delay or message.deadline or message.dedup_key or message.unique_key)
        # A plain tuple is the same key as a `WriteKind`, and is made at once.
        kind = (len(declared), not is_plain, self._few is not None)
        words = view.words_cache.get(kind) or _words(self._state, view, WriteKind(*kind))
        positions = word_of(bytes([stream + 1 for stream in streams])) if chooses_all else words.positions
        key = shard_key if isinstance(shard_key, bytes) else shard_key.encode()
        head = b"%b %b %b" % (words.before, self._number.encode(), self.sequence.name.encode())
        # The order of a call of write: KEYS (those of the queue, then the streams), the head (ARGV[1], which ends with
        # the number and the name of the sequence), then the words of the message. `call_of` makes the same for many.
        request = b"%b%b$%d\r\n%b\r\n%b$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
            words.start_by_hash if form is HASH else words.start,
            b"".join(map(words.streams.__getitem__, declared)),
            len(head),
            head,
            positions,
            len(key),
            key,
            len(tag),
            tag.encode(),
            len(body),
            body,
        )
        return request if is_plain else request + word_of(message.headers) + word_of(message.options.encode())

    @property
    def sendable(self) -> LoneWrite:
        """Itself."""
        return self

    @property
    def call(self) -> Call:
        """The call, always the same one."""
        if self._call is None:
            self._call = call_with(self._state, self._view, self.sequence, [self._message], self._number, self._few)
            self._call.until = self.until
        return self._call


def goes_alone(state: QueueState, view: QueueView, messages: Sequence[Outgoing]) -> bool:
    """Return whether a call with *messages* can be a `LoneWrite`."""
    return len(messages) == 1 and not state.durability.replicas and view.choices <= BYTE_POSITIONS


def _words(state: QueueState, view: QueueView, kind: WriteKind) -> WriteWords:
    """Return the words of writes of one kind. They are made once for each view."""
    own = bytes(range(1, kind.declared + 1))
    columns: list[Sequence[Any]] = [[own], [""], [""], [b""]]
    if kind.has_more:
        columns += [[b""], [""]]
    like = call_of(state, view, "", "", range(kind.declared), columns, state.few["write"] if kind.is_few else None)
    # The last two words of the head, the number and the name, are the only ones that differ from call to call.
    before = str(like.args[0]).rsplit(" ", 2)[0]
    count, keys = 3 + len(like.keys) + len(like.args), like.keys[: len(like.keys) - kind.declared]
    start, start_by_hash = [
        b"*%d\r\n%b" % (count, pack_words((*like.script.command(form), len(like.keys), *keys)))
        for form in (FUNCTION, HASH)
    ]
    words = WriteWords(start, start_by_hash, before.encode(), StreamWords(state.keys), word_of(own))
    view.words_cache[kind] = words
    return words


def call_with(
    state: QueueState,
    view: QueueView,
    sequence: ProducerSequence,
    chunk: Sequence[Outgoing],
    number: str,
    few: FewKeys | None = None,
) -> Call:
    """Make the call that stores *chunk*. *number* says which call of *sequence* this is: see `number_of`."""
    numbers, positions = positions_of(view, [message.shard_key for message in chunk])
    plain = not any(message.headers or message.options for message in chunk)
    columns: list[Sequence[Any]] = [
        positions,
        [message.shard_key for message in chunk],
        [message.tag for message in chunk],
        [message.body for message in chunk],
    ]
    if not plain:
        columns += [[message.headers for message in chunk], [message.options for message in chunk]]
    return call_of(state, view, sequence.name, number, numbers, columns, few)


def call_for(
    state: QueueState, view: QueueView, sequence: ProducerSequence, chunk: Sequence[Outgoing], until: float
) -> Call:
    """Make the call that stores *chunk*, the next one of *sequence*."""
    asked = chunk[0].asked if chunk else ""
    return call_with(state, view, sequence, chunk, number_of(state, sequence, until) + asked)


def call_of(
    state: QueueState,
    view: QueueView,
    field: str,
    number: Argument,
    numbers: Sequence[int],
    columns: Sequence[Sequence[Any]],
    few: FewKeys | None = None,
) -> Call:
    """Make the call that stores messages. With *few* it declares these keys alone.

    *columns* are their positions, shard keys, tags and payloads, and if any has such, their headers and options.
    *field* names the producer sequence or the bulk offset that remembers the call; *number* identifies the call in it.
    """
    count, stride = len(columns[0]), len(columns)
    window = view.config.dedup_window if state.remember is None else state.remember
    # lua/write.lua reads the head in this order.
    head = view.epoch, round(window * 1000), count, stride, number, field or "-"
    args: list[Argument] = [" ".join(map(str, head)), *[b""] * (stride * count)]
    # ARGV has the messages one after the other, `stride` words each; here they come by columns.
    for at, column in enumerate(columns, 1):
        args[at::stride] = column
    streams, replicas = tuple(map(state.keys.stream, numbers)), state.durability.replicas
    call = Call.on(state.keys, "write", tuple(args), rest=streams, replicas=replicas, few=few)
    # Cached words are right only where all streams are declared: then a shard key has the same positions in each call.
    if count < MIN_PACKED_WRITE or stride > WORDS or not isinstance(numbers, range) or len(set(columns[2])) > 1:
        return call
    positions, keys, tags, bodies = columns
    packed = pack_messages(view, positions, keys, tags[0], bodies)
    return WriteMany(call.script, call.keys, call.args, replicas, last=packed, messages=count)


def positions_of(view: QueueView, shard_keys: Sequence[str | bytes]) -> tuple[Sequence[int], Sequence[bytes]]:
    """Return the streams to declare, and for each shard key the positions of its streams among them, from 1."""
    if view.wanted <= min(BYTE_POSITIONS, len(shard_keys) * view.config.streams_per_shard):
        return range(view.wanted), _full_positions(view, shard_keys)  # nearly all streams are needed, so declare all
    shards = {key: view.shard(key) for key in set(shard_keys)}
    numbered = {stream: at for at, stream in enumerate(dict.fromkeys(chain.from_iterable(shards.values())), 1)}
    size = 1 if len(numbered) <= BYTE_POSITIONS else 2
    positions = {key: b"".join([numbered[stream].to_bytes(size) for stream in shards[key]]) for key in shards}
    return list(numbered), [positions[key] for key in shard_keys]


def _full_positions(view: QueueView, shard_keys: Sequence[str | bytes]) -> Sequence[bytes]:
    """Return the positions if all streams are declared. They are cached, since a view does not change."""
    known = view.positions_cache[0]
    if len(known) > CACHED_SHARDS:
        known = view.positions_cache[0] = {}
    try:
        return [known[key] for key in shard_keys]
    except KeyError:
        for key in shard_keys:
            if key not in known:
                known[key] = bytes(view.shards.deal(key)).translate(_NEXT)
        return [known[key] for key in shard_keys]
