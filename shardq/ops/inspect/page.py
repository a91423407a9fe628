"""The messages that a look wants, and where in their order it has come to."""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec.structs import replace

from shardq.model import PeekState

MAX_COUNT: Final = 1000
MESSAGES_A_CALL: Final = 100
"""Messages, about, that one call of a script looks at, which takes it less than 1 ms."""

CALLS: Final = 100
"""A look for some messages among many ends after this many calls, and can continue from there."""

_NUMBER: Final = re.compile(r"[0-3]?\d{1,3}|40[0-8]\d|409[0-6]", re.ASCII)
_PLACE: Final = re.compile(r"(?:\d{1,16}-\d{1,20})?", re.ASCII)


class WantedMessages(msgspec.Struct, frozen=True):
    """The messages that are wanted: those of one shard key (b"" for any), and of one stream (None for any).

    The look for them ends at local time `until`.
    """

    until: float
    count: int
    state: PeekState
    shard_key: bytes = b""
    stream: int | None = None
    payloads: bool = False

    @property
    def is_any(self) -> bool:
        """Whether any message of the state is wanted."""
        return not self.shard_key and self.stream is None

    def less(self, count: int) -> WantedMessages:
        """Return the same, when *count* messages are there."""
        return replace(self, count=self.count - count)


class Track(msgspec.Struct, array_like=True):
    """How far a look has come in one stream: its number, the point there, and how many messages lie before that."""

    number: str
    point: str = ""
    passed: int = 0


class Point(msgspec.Struct, array_like=True):
    """How far a look has come: in streams (`tracks`), or behind a member of an index and what it names there."""

    kind: str
    tracks: list[Track] = []
    member: bytes = b""
    number: int = 0
    bucket: int = 0
    child: bytes = b""
    position: bytes = b""

    @property
    def is_begun(self) -> bool:
        """Whether it is behind anything."""
        return bool(self.tracks or self.member)

    @property
    def is_sound(self) -> bool:
        """Whether scripts can read it."""
        return all(_NUMBER.fullmatch(each.number) and _PLACE.fullmatch(each.point) for each in self.tracks)
