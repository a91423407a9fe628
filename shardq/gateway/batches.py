"""A batch as it was received: its own figures are checked before it is decompressed, and then each message.

It is bounded so that it never takes more than a single message may, decompressed and with what each of its messages
takes in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from shardq.datasink.batches import BadBatch, Member, members_in
from shardq.datasink.frames import BadFrame, decompressed, dictionary_of, size_of
from shardq.datasink.runs import BadRuns, ids_in
from shardq.files import MIB
from shardq.gateway.checks import Broken, RequestRefused, envelope_of, too_large
from shardq.gateway.received import OVERHEAD_BYTES, Envelope, Incoming
from shardq.gateway.tokens import Token

MAX_MESSAGES: Final = 500
MAX_BATCH_BYTES: Final = MIB // 4
MAX_ENVELOPE: Final = 16 * 1024
"""Bytes of an envelope: twice what headers may take."""


class BatchBounds(NamedTuple):
    """How many messages a batch may have, and how many bytes, decompressed."""

    messages: int
    bytes: int


def bounds_of(max_message: int) -> BatchBounds:
    """Return the bounds of batches at a gateway that takes payloads of *max_message* bytes."""
    return BatchBounds(min(MAX_MESSAGES, max(1, max_message // OVERHEAD_BYTES)), min(MAX_BATCH_BYTES, max_message))


def ids_of(given: Any, bounds: BatchBounds) -> list[bytes]:
    """Return the ids of the messages of a batch. Broken if there are none, or more than the gateway allows."""
    try:
        ids = ids_in(given.ids, bounds.messages)
    except BadRuns as bad:
        raise Broken(f"the ids of a batch are not well formed: {bad}") from None
    if not ids:
        raise Broken("a batch has no messages")
    return ids


class WireBatch:
    """A batch within its bounds. `size` is that of its members, decompressed.

    `dictionary` and `prefix` are the numbers of those that its frame needs; 0 is none.
    """

    def __init__(self, given: Any, ids: Sequence[bytes], bounds: BatchBounds) -> None:
        """Look at what a batch with these *ids* says of itself. Refused if that is too much, or not enough."""
        kind = given.WhichOneof("members")
        if kind is None:
            raise RequestRefused("NOT_DECODABLE", "the batch has no members")
        self._ids, self._is_frame, self._content = ids, kind == "zstd", getattr(given, kind)
        self.dictionary = dictionary_of(self._content) if self._is_frame else 0
        self.prefix = given.prefix if self._is_frame else 0
        try:
            self.size = size_of(self._content, bounds.bytes) if self._is_frame else len(self._content)
        except BadFrame as bad:
            raise RequestRefused("NOT_DECODABLE", f"of the batch: {bad}") from None
        if self.size > bounds.bytes:
            raise RequestRefused("NOT_DECODABLE", f"the batch has {self.size:,} bytes, more than {bounds.bytes:,}")

    def members(self, dictionary: Any) -> bytes:
        """Return its members, decompressed with a dictionary, a prefix or None. Refused if it is damaged."""
        try:
            return decompressed(self._content, self.size, dictionary) if self._is_frame else bytes(self._content)
        except BadFrame as bad:
            raise RequestRefused("NOT_DECODABLE", f"of the batch: {bad}") from None

    def opened(self, members: bytes, token: Token, max_message: int, *, releases: bool) -> Opened:
        """Take its members apart. Refused if one of its messages is torn."""
        try:
            return Opened(self._ids, members, token, max_message, releases=releases)
        except BadBatch as bad:
            raise RequestRefused("NOT_DECODABLE", f"of the batch: {bad}") from None


class Opened:
    """The messages of a batch, (id, member) each. Each envelope is checked once with each shard key."""

    def __init__(self, ids: Sequence[bytes], content: bytes, token: Token, max_message: int, *, releases: bool) -> None:
        self._envelopes, self._keys, members = members_in(content, len(ids))
        self.messages = list(zip(ids, members, strict=True))
        self._token, self._max_message, self._releases = token, max_message, releases
        self._checked: dict[tuple[int, int], Envelope | RequestRefused] = {}

    def incoming(self, message_id: bytes, member: Member) -> Incoming | RequestRefused:
        """Return one of the messages, or why it can never be stored."""
        which = member.envelope, member.shard_key
        if (envelope := self._checked.get(which)) is None:
            envelope = self._checked[which] = self._check(member)
        if isinstance(envelope, RequestRefused):
            return envelope
        if (size := len(member.payload)) > self._max_message:
            return too_large(size, self._max_message)
        return Incoming(message_id, envelope, member.payload, False, size, self._releases)

    def _check(self, member: Member) -> Envelope | RequestRefused:
        given = self._envelopes[member.envelope]
        if (size := given.ByteSize()) > MAX_ENVELOPE:  # it would be looked through once with each shard key
            return RequestRefused("INVALID", f"the envelope has {size:,} bytes, more than {MAX_ENVELOPE:,}")
        try:
            return envelope_of(given, self._keys[member.shard_key], self._token)
        except RequestRefused as refused:
            refused.__context__ = None  # an error keeps the frames that it went through, with all that is in them
            return refused.with_traceback(None)
