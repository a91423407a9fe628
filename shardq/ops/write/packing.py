"""The call of write.lua for many plain messages, whose bytes are put together from words that were packed before.

Of the words of a message only the payload is new: the positions of its streams, the shard key and the tag are the same
for all messages of the shard key. To pack them again for each took longer than all else that a client does for a
message of a large batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardq.ops.queue.steps import Call
from shardq.ops.queue.view import QueueView
from shardq.protocol.packing import pack_script
from shardq.protocol.script import Form
from shardq.sharding import CACHED_SHARDS

WORDS = 4
"""Words of a plain message: positions, shard key, tag, payload."""


@dataclass(slots=True)
class WriteMany(Call):
    """A `Call` whose last words, those of the messages, are `packed` already."""

    packed: bytes = b""
    messages: int = 0

    def request(self, form: Form) -> bytes:
        """Return the bytes of the command, the same as those of any call with these words."""
        words = WORDS * self.messages
        return pack_script(self.script, form, self.keys, self.args[: len(self.args) - words], self.packed, words)


class _Lengths(dict[int, bytes]):
    """What precedes a word of so many bytes."""

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
                known[key] = word_of(own) + word_of(key if isinstance(key, bytes) else key.encode()) + last
        return [known[key] for key in keys]


def word_of(raw: bytes) -> bytes:
    """Return a word of a command as it is sent."""
    return b"$%d\r\n%b\r\n" % (len(raw), raw)
