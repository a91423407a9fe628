"""Where one message is, and what it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

MessageState: TypeAlias = Literal["waiting", "held_back", "delayed", "in_flight", "dead", "done", "unknown"]
"""The state of a message. "unknown": it was settled, removed or expired, or never was."""


class Progress(msgspec.Struct, frozen=True):
    """How far a handler is with a message: *done* of *total* (None: it did not say), as of the server's time `at`.

    `note` is its text. `Delivery.progress` notes it, and `status` shows it.
    """

    done: float
    total: float | None
    note: str
    at: float


@dataclass(frozen=True, slots=True)
class MessageStatus:
    """One message at the instant `time`. All times are seconds since the epoch, by the server's clock.

    A field that is not known, or has no meaning in a state, is None, or '' for a text.

    - "waiting": it is delivered when its turn comes. `stream` is where it waits; `ahead` is about how many messages of
      that stream come before it. Reads go round all streams, so others deliver as many meanwhile. `reason` is "paused"
      if its shard key or the queue is paused: until `until`, or as long as nobody resumes it if that is None.
    - "held_back": it waits in the overflow of its shard key. `reason` says what has no room for it: "window",
      "max_in_flight", "rate" or "paused". `ahead` is about how many messages of its shard key come before it.
    - "delayed": it is due at `until`. `reason` is "max_dead" if it waits for room among the dead letters.
    - "in_flight": it is leased until `until`, unless the holder extends that. `holder` tells the reads that leased
      messages apart: it is the beginning of a nonce, since Redis knows no name of a reader. (A journal has the name of
      the client in the event of the delivery.) `cancelled` says that it is not delivered again. Both are None if the
      lease is not among the 1,000 that end first, among those in the same bucket of the index, which is chosen by the
      shard key, or among all that do not count in an admission window. They are also None for most cancelled messages.
    - "dead": it is a dead letter since `since`, by `reason`. One that died under an earlier version is "unknown".
    - "done": it was acked at `since`, and its result is kept until `until` (docs/results.md). `size` is that of the
      result; `reason` says why there is none: "size", "codec" or "full". Nothing else is known of it any more.
    - "unknown": it was settled, removed or expired, or never was. Nothing else is known.

    A message also waits if it has come due (`until` is over), or if its lease has ended (`reason` is "lease ended"),
    and no read has taken it back yet: then `stream` and `ahead` are None. `reason` is "max_deliveries" if that was its
    last delivery, so that the next read makes it a dead letter, and "deadline" if the next read drops it, since its own
    `deadline` is over.

    `written_at` is when it was written, `since` since when it can be delivered, if it was delayed or given back.
    `deliveries` counts those so far, this one included if it is in flight; `last_error` is the one with which it was
    given back last, `error_type` its class ('' if it was only a text). `size` is that of its payload in bytes, and
    `task` the name of the task that it calls.

    `Queue.status` returns one: `message_id`, `shard_key` and `headers` are those of the write, `state` is one of the
    words above. `progress` is the last that its handler told by `Delivery.progress`, None if it told nothing.
    """

    message_id: str
    state: MessageState
    time: float
    shard_key: str | bytes | None = None
    stream: int | None = None
    ahead: int | None = None
    reason: str = ""
    until: float | None = None
    holder: str | None = None
    cancelled: bool = False
    written_at: float | None = None
    since: float | None = None
    deadline: float | None = None
    deliveries: int | None = None
    last_error: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    size: int | None = None
    task: str = ""
    progress: Progress | None = None
    error_type: str = ""
