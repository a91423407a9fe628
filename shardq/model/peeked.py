"""Messages that were looked at without a delivery."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec

from shardq.model.dead_letter import Decoded

PeekState: TypeAlias = Literal["waiting", "held_back", "delayed", "in_flight", "dead"]
"""The states in which `Queue.peek` finds messages."""


@dataclass(frozen=True, slots=True)
class PeekedMessage(Decoded):
    """One message as it was looked at. All times are seconds since the epoch, by the server's clock.

    A field that is not known, or has no meaning in a state, is None, or '' for a text. `stream` is where a message
    waits. `written_at` is when it was written; `since` since when it can be delivered, if it was delayed or given back
    (of a dead letter: when it died). `until` is when a delayed message comes due, or a lease ends unless it is
    extended; if that is over, and no read has taken the message back yet, its state is "waiting". `holder` tells the
    reads that leased messages apart (the beginning of a nonce); `cancelled` says that a message in flight is not
    delivered again. `deadline` is the message's own: once that is over, a read drops it. `deliveries` counts those so
    far, this one included if it is in flight; `last_error` is the one with which it was given back last, `error_type`
    its class ('' if it was only a text), `reason` why it is a dead letter, or "max_dead" if it waits for room among
    these. `size` is that of the payload in bytes. `task` is the name of the task that the payload calls, if it is a
    call.

    `Queue.peek` returns them. `message_id`, `shard_key` and `headers` are those of the write, and `state` says in which
    list it was found. If payloads were asked for, `body` has the payload as it is stored, `tag` the letter of its
    codec, and `fields` those of a legacy entry; else they are None.
    """

    message_id: str
    state: PeekState
    shard_key: str | bytes
    written_at: float
    stream: int | None = None
    since: float | None = None
    until: float | None = None
    holder: str | None = None
    cancelled: bool = False
    deadline: float | None = None
    deliveries: int = 0
    last_error: str = ""
    reason: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    size: int = 0
    task: str = ""
    body: bytes | None = field(default=None, repr=False)
    tag: str = "b"
    fields: Mapping[str, bytes] | None = field(default=None, repr=False)
    error_type: str = ""

    @property
    def payload(self) -> Any:
        """The decoded payload; for a legacy entry its fields. None unless payloads were asked for.

        CodecError if it cannot be decoded. A message that was copied or pickled uses the built-in codecs only.
        """
        return None if self.body is None else self._decoded(self.tag, self.body, self.fields)


class PeekedPage(msgspec.Struct, frozen=True):
    """Some messages in order. Continue with `after=page.cursor`, which is None after the last page.

    A page may have fewer messages than were asked for, or none, and yet not be the last one: a call looks at a bounded
    number of messages. `time` is the server's, in seconds since the epoch. `Queue.peek` returns one: its `messages`,
    and the `cursor`.
    """

    messages: tuple[PeekedMessage, ...]
    cursor: str | None
    time: float
