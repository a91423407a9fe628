"""Requests that are as large as they may be, and made of as many parts as go into so many bytes: one for each field
that may be repeated, and for each length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from backports import zstd

from shardq.datasink.messages import Batch, ClientInfo, Envelope, Members, Request, Run
from tests.gateway.producer import batch, request

MOST: Final = 1024 * 1024 + 64 * 1024
"""Bytes of a request at a gateway with the defaults."""
ROOM: Final = MOST - 16
"""Bytes of what is in it."""
INSIDE: Final = 256 * 1024 - 16
"""Bytes of the members of a batch."""
RUNS: Final = [Run(first=b"id", count=1)]
VERSION: Final = b"\x08\x01"


def tag(kind: Any, name: str) -> bytes:
    """What a field of bytes begins with."""
    return bytes([kind.DESCRIPTOR.fields_by_name[name].number << 3 | 2])


def length(size: int) -> bytes:
    """A length as it is on the wire."""
    found = bytearray()
    while size > 127:
        found.append(size & 127 | 128)
        size >>= 7
    return bytes([*found, size])


def inside(kind: Any, name: str, content: bytes) -> bytes:
    """A field of bytes."""
    return tag(kind, name) + length(len(content)) + content


def empty(kind: Any, name: str, size: int) -> bytes:
    """As many empty fields as go into so many bytes."""
    return (tag(kind, name) + b"\x00") * (size // 2)


def filled(content: bytes) -> bytes:
    """A request with this content."""
    return VERSION + content


def members(**fields: Any) -> bytes:
    """A batch of one message, whose members are made of these."""
    return bytes(batch(zstd=zstd.compress(Members(**fields).SerializeToString()), ids=RUNS).SerializeToString())


def headers() -> bytes:
    """A message with as many headers as go into a request, each another one."""
    each = (b"%05d" % number for number in range(ROOM // 11))
    return filled(b"".join(inside(Request, "headers", b"\x0a\x05" + name) for name in each))


def keyed(envelopes: list[bytes], keys: list[bytes]) -> bytes:
    """A batch of 500 messages, which share out the envelopes and the keys."""
    content = Members(
        envelope=[at % len(envelopes) for at in range(500)], shard_key=[at % len(keys) for at in range(500)],
        payload_sizes=[0] * 500, envelope_sizes=map(len, envelopes), shard_key_sizes=map(len, keys),
        envelopes=b"".join(envelopes), shard_keys=b"".join(keys),
    )  # fmt: skip
    frame = zstd.compress(content.SerializeToString())
    return bytes(batch(zstd=frame, ids=[Run(first=b"\x01\x01\x00\x00", count=500)]).SerializeToString())


def enveloped(size: int, count: int = 1) -> bytes:
    """An envelope with so many headers, of so many bytes in all."""
    found = {f"{at:03}": "x" * (size // count) for at in range(count)}
    return bytes(Envelope(queue="q", headers=found).SerializeToString())


def hollow_frame(size: int) -> bytes:
    """A frame of one byte, behind as many empty blocks as go into so many bytes."""
    header = b"\x28\xb5\x2f\xfd\x20\x01"  # one segment, which has one byte
    return header + b"\x00\x00\x00" * (size // 3) + b"\x09\x00\x00x"


FRAMES: Final[dict[str, Callable[[], bytes]]] = {
    "runs of a batch": lambda: filled(inside(Request, "batch", empty(Batch, "ids", ROOM))),
    "ids of a run": lambda: bytes(batch(plain=b"", ids=[Run(first=b"id", count=2**32 - 1)] * 500).SerializeToString()),
    "released runs": lambda: filled(inside(Request, "info", empty(ClientInfo, "released_runs", ROOM))),
    "released ids": lambda: filled(inside(Request, "info", empty(ClientInfo, "released", ROOM))),
    "released ids that are some": lambda: bytes(
        Request(version=1, info=ClientInfo(released=[b"%064d" % at for at in range(10_000)])).SerializeToString()
    ),
    "dictionaries that are offered": lambda: filled(
        inside(Request, "info", inside(ClientInfo, "offered_dictionaries", b"\x01" * (ROOM - 8)))
    ),
    "dictionaries": lambda: filled(inside(Request, "info", empty(ClientInfo, "dictionary", ROOM))),
    "news in news": lambda: filled(empty(Request, "info", ROOM)),
    "news and batches": lambda: filled((tag(Request, "info") + b"\0" + tag(Request, "batch") + b"\0") * (ROOM // 4)),
    "headers": headers,
    "the same header": lambda: filled(empty(Request, "headers", ROOM)),
    "parts of a header": lambda: filled(inside(Request, "headers", b"\x0a\x00" * (ROOM // 2))),
    "queues": lambda: filled(empty(Request, "queue", ROOM)),
    "versions": lambda: VERSION * (MOST // 2),
    "what nobody knows": lambda: filled(b"\xa0\x06\x01" * (ROOM // 3)),
    "a payload": lambda: bytes(request(1, "q", plain_message=b"x" * 1024 * 1024).SerializeToString()),
    "empty blocks": lambda: bytes(request(1, "q", zstd_compressed=hollow_frame(1024 * 1024)).SerializeToString()),
    "empty blocks of a batch": lambda: bytes(batch(zstd=hollow_frame(1024 * 1024), ids=RUNS).SerializeToString()),
    "sizes of payloads": lambda: members(payload_sizes=[0] * INSIDE),
    "sizes of envelopes": lambda: members(payload_sizes=[0], envelope_sizes=[0] * INSIDE),
    "sizes of shard keys": lambda: members(payload_sizes=[0], shard_key_sizes=[0] * INSIDE),
    "places of envelopes": lambda: members(payload_sizes=[0], envelope=[0] * INSIDE),
    "places of shard keys": lambda: members(payload_sizes=[0], shard_key=[0] * INSIDE),
    "headers of an envelope": lambda: keyed([enveloped(200_000, 20_000)], [b"%d" % at for at in range(500)]),
    "a large header, by shard keys": lambda: keyed([enveloped(250_000)], [b"%d" % at for at in range(500)]),
    "many headers, by shard keys": lambda: keyed([enveloped(7_000, 64)], [b"%d" % at for at in range(500)]),
    "headers that are too large, by shard keys": lambda: keyed(
        [enveloped(12_000, 64)], [b"%d" % at for at in range(500)]
    ),
    "a large shard key, by envelopes": lambda: keyed([enveloped(at) for at in range(500)], [b"\xff" * 100_000]),
    "a large topic, by shard keys": lambda: keyed(
        [bytes(Envelope(topic="x." * 100_000).SerializeToString())], [b"%d" % at for at in range(500)]
    ),
    "ids of a batch that is none": lambda: bytes(
        batch(plain=b"\xff" * INSIDE, ids=[Run(first=b"\x01\x01\x00\x00", count=500)]).SerializeToString()
    ),
}
"""By what they have many of."""
