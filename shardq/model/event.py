"""What happened to messages, as the journal of a queue tells it (docs/journal.md)."""

from __future__ import annotations

import msgspec


class Event(msgspec.Struct, frozen=True):
    """Something that happened to a message. Times are seconds by the server's clock.

    `stream` is where the message was stored when it was written, None if it was delayed or held back. `shard_key` is
    None where the script could not know it. `count` is the deliveries so far. `due` is when the message is deliverable
    (of a delivery: when it was), None for at once. `client` made the call, '' for one that writes.
    """

    number: int
    time: float
    kind: str
    message_id: str
    shard_key: str | bytes | None
    stream: int | None
    count: int
    due: float | None
    client: str


class JournalPage(msgspec.Struct, frozen=True):
    """Some events in order. Go on after `position`; `latest` is the position of the newest event there is.

    `lost` events between the position asked for and `position` are not there any more: the journal is bounded.
    """

    events: list[Event]
    position: int
    latest: int
    lost: int
