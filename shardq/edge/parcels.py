"""Parcels, which go out at once: a parcel is the messages of one request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from shardq.datasink.batches import members_of
from shardq.datasink.messages import VERSION, Batch, Request
from shardq.datasink.runs import runs_of
from shardq.edge.compression import Compressor
from shardq.edge.prefixes import Prefix
from shardq.edge.spool import Spooled

MAX_MESSAGES: Final = 500
MAX_PARCEL_BYTES: Final = 256 * 1024
COLUMNS: Final = 64
"""Bytes of a batch besides its messages, which take less in it than they do as requests."""


class ParcelBounds(NamedTuple):
    """How many messages may go out in one request, and of how many bytes. An older gateway takes one."""

    messages: int = 1
    bytes: int = 0

    @classmethod
    def told(cls, info: Any) -> ParcelBounds:
        """Return those of a gateway that says what it takes, and no more than is of use."""
        return cls(min(info.max_batch_messages, MAX_MESSAGES), min(info.max_batch_bytes, MAX_PARCEL_BYTES))

    @property
    def takes_batches(self) -> bool:
        """Whether the gateway knows batches, and runs of ids."""
        return self.bytes > 0


class Parcel:
    """The messages of one request, of *size* bytes, and how many of them are not answered yet.

    `timer` is that of this attempt, which began at *sent_at*.
    """

    __slots__ = ("left", "sent_at", "size", "timer")

    def __init__(self, left: int, timer: Any, size: int, sent_at: float) -> None:
        self.left, self.timer, self.size, self.sent_at = left, timer, size, sent_at

    def answered(self) -> None:
        """One of the messages is not waited for any more. The timer of the last one ends."""
        self.left -= 1
        if not self.left:
            self.timer.cancel()


@dataclass(slots=True)
class Ready:
    """A message that was read from the spool, and the parcel in which it is on its way.

    `asks_for` is the place for which it asks the gateway again. `frames` counts how often it went out in a frame, and
    `is_plain` says that it goes alone and plain from now on, since the gateway could not read one.
    """

    message: Spooled
    asks_for: str = ""
    is_plain: bool = False
    frames: int = 0
    parcel: Parcel | None = field(default=None, repr=False)

    def leave(self) -> None:
        """It is answered, or goes out again."""
        if self.parcel is not None:
            self.parcel.answered()
            self.parcel = None


class Packed(NamedTuple):
    """The bytes that go out for some messages: one payload, or the members of a batch; and its frame, if smaller.

    `prefix` is the number of the frame's prefix, or 0.
    """

    content: bytes
    is_batch: bool
    frame: bytes | None = None
    prefix: int = 0


def packed(
    requests: Sequence[Any],
    compressor: Compressor | None,
    prefix: Prefix | None = None,
    *,
    is_batch: bool,
    is_hard: bool = False,
) -> Packed:
    """Return what goes out of these: the members of a batch, or the payload of the only one, and as which frame.

    It goes plain without a *compressor*. The frame is made with a *prefix* if that pays.
    """
    content = bytes(members_of(requests).SerializeToString()) if is_batch else bytes(requests[0].plain_message)
    if compressor is None:
        return Packed(content, is_batch)
    pays = None if prefix is None else prefix.pays_for(is_hard=is_hard)
    if prefix is None or pays is False or not is_batch:
        return Packed(content, is_batch, compressor.frame(content))
    frame = prefix.frame(content, is_hard=is_hard)
    if pays is None:
        other = compressor.frame(content)
        prefix.compare(len(frame), least := len(other or content), is_hard=is_hard)
        if least <= len(frame):
            return Packed(content, is_batch, other)
    return Packed(content, is_batch, frame, prefix.number)


def request_of(requests: Sequence[Any], packed: Packed, part: Any) -> Any:
    """Return the request that carries *requests* as *packed*, and as a *part* of a prefix unless that is None."""
    frame = packed.frame
    if not packed.is_batch:
        (request,) = requests
        if frame is not None:
            request.zstd_compressed = frame
        return request
    ids = runs_of(each.message_id for each in requests)
    members = {"plain": packed.content} if frame is None else {"zstd": frame, "prefix": packed.prefix}
    return Request(version=VERSION, batch=Batch(ids=ids, part=part, **members))
