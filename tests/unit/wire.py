"""What calls and replies say, as the headers of the verbs state it (`@verb` in the Lua), for tests without a server."""

from __future__ import annotations

from typing import Any, NamedTuple

from shardq.ops.queue.steps import Call

NOW = 1_700_000_000_000
KINDS = {"a": "ack", "n": "nack", "r": "reject", "u": "nack", "g": "give_back"}


def name_of(call: Call) -> str:
    """The verb that it calls; of `settle`, which ends deliveries in many ways, the way."""
    return KINDS[str(call.args[0])] if call.script.name == "settle" else call.script.name


def is_repeated(call: Call) -> bool:
    """Whether this ack says that an earlier try of it may have happened."""
    return call.args[1] != "0"


class ReadHead(NamedTuple):
    """The first argument of `read`."""

    most: int
    holder: str
    visibility: int
    blocks: int
    width: int
    prefer: str
    has_all: bool
    watch: str


def read_head(call: Call) -> ReadHead:
    """What a call of `read` wants."""
    most, holder, visibility, blocks, width, prefer, has_all, watch = str(call.args[0]).split(" ")
    return ReadHead(int(most), holder, int(visibility), int(blocks), int(width), prefer, has_all == "1", watch)


class WriteHead(NamedTuple):
    """The first argument of `write`; `sequence` has the number and for how many ms the call may be repeated."""

    epoch: str
    lane: str
    sequence: str
    window: int
    messages: int
    stride: int

    @property
    def number(self) -> int:
        """Which call of its lane this is."""
        return int(self.sequence.partition("|")[0])


def write_head(call: Call) -> WriteHead:
    """What a call of `write` begins with."""
    epoch, window, messages, stride, sequence, lane = str(call.args[0]).split(" ", 5)
    return WriteHead(epoch, lane, sequence, int(window), int(messages), int(stride))


def read_reply(
    *rows: Any,
    kind: bytes = b"OK",
    wait: int = -1,
    hints: bytes = b"",
    epoch: bytes = b"1",
    now: int = NOW,
    again: tuple[Any, ...] = (),
    mark: bytes = b"",
    stream: int = 2,
) -> list[Any]:
    """What `read` replies that found these *rows* in a *stream*, and *again* outside of streams."""
    return [kind, now, epoch, wait, hints, [b"%d" % stream, list(rows)] if rows else [], list(again), mark]
