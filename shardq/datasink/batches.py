"""Batches: the messages of one frame, by columns.

The common part of many messages (the queue, headers, shard keys) is there once, and their payloads lie side by side,
where zstd sees best what they repeat.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, repeat
from typing import Any, NamedTuple

from shardq.extras import extra

with extra("edge"):
    from google.protobuf.message import DecodeError

from shardq.datasink.messages import Envelope, Members
from shardq.errors import ShardqError

__all__ = ["BadBatch", "Member", "members_in", "members_of"]


class BadBatch(ShardqError):
    """Bytes that are no messages of a batch. Its text shows nothing of the content."""


class Member(NamedTuple):
    """A message of a batch: the number of its envelope, that of its shard key, and its payload."""

    envelope: int
    shard_key: int
    payload: bytes


def members_of(requests: Sequence[Any]) -> Any:
    """Return the Members of requests that each have a `plain_message`, without their ids."""
    envelopes, keys = dict[tuple[Any, ...], int](), dict[bytes, int]()
    numbers, key_numbers, payloads = list[int](), list[int](), list[bytes]()
    for each in requests:
        headers = tuple(sorted(each.headers.items())) if each.headers else ()
        fields = each.queue, each.topic, each.codec, each.delay_ms, headers
        numbers.append(envelopes.setdefault(fields, len(envelopes)))
        key_numbers.append(keys.setdefault(each.shard_key, len(keys)))
        payloads.append(each.plain_message)
    packed = [
        Envelope(queue=queue, topic=topic, codec=codec, delay_ms=delay, headers=dict(headers)).SerializeToString()
        for queue, topic, codec, delay, headers in envelopes
    ]
    return Members(
        envelope=numbers if len(packed) > 1 else (), shard_key=key_numbers if len(keys) > 1 else (),
        payload_sizes=map(len, payloads), envelope_sizes=map(len, packed), shard_key_sizes=map(len, keys),
        envelopes=b"".join(packed), shard_keys=b"".join(keys), payloads=b"".join(payloads),
    )  # fmt: skip


def members_in(content: bytes, count: int) -> tuple[Sequence[Any], Sequence[bytes], Iterator[Member]]:
    """Return the envelopes, the shard keys and the *count* messages of a serialized Members.

    BadBatch if it is none, has another number of messages, or if one of them is torn.
    """
    try:
        members = Members.FromString(content)
        if len(members.payload_sizes) != count:
            raise BadBatch(f"the batch has {len(members.payload_sizes):,} messages, and {count:,} ids")
        payloads = _cut("payloads", members.payloads, members.payload_sizes, count)
        keys = _cut("shard keys", members.shard_keys, members.shard_key_sizes, count)
        packed = _cut("envelopes", members.envelopes, members.envelope_sizes, count)
        envelopes = [Envelope.FromString(each) for each in packed]
    except DecodeError:
        raise BadBatch("the batch is no protobuf of this service") from None
    numbers = _places(members.envelope, len(envelopes), count)
    key_numbers = _places(members.shard_key, len(keys), count)
    return envelopes, keys, map(Member, numbers, key_numbers, payloads)


def _cut(what: str, content: bytes, given: Sequence[int], most: int) -> list[bytes]:
    """Return the pieces of *content* with these sizes. BadBatch if that is not all of it, or are more than *most*."""
    if len(given) > most:
        raise BadBatch(f"the batch has more {what} than messages")
    sizes = list(given)
    if sum(sizes) != len(content):
        raise BadBatch(f"the {what} of the batch have {len(content):,} bytes, and not the {sum(sizes):,} that it says")
    return [content[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True)]


def _places(given: Sequence[int], among: int, count: int) -> Sequence[int]:
    """Return of each message its place *among* what several have in common. BadBatch if it has none."""
    if len(given) not in (0, count):
        raise BadBatch("the batch does not say of each message which envelope and shard key it has")
    places = list(given) or list(repeat(0, count))
    if max(places) >= among:
        raise BadBatch("a message of the batch has no envelope, or no shard key")
    return places
