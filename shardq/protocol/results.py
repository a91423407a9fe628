"""Results and progress of messages, as the library keeps them (lua/results.lua has the formats)."""

from __future__ import annotations

from typing import Final, NamedTuple

from shardq.model import Progress

VALUE: Final = "v"
TOO_LARGE: Final = "size"
NOT_ENCODED: Final = "codec"
FULL: Final = "full"
"""The record of a message that is done: its value, or why there is none."""

NOTE: Final = "n"
"""A note about a message that is not done. Nobody who waits for a result sees it."""

NOTHING_KEPT: Final = ""
"""Nothing is kept of the message: only its progress is forgotten."""

MAX_NOTE: Final = 200
"""Characters to which a note of progress is cut."""


class KeptResult(NamedTuple):
    """The record of one message: a `kind`, and the encoded value with its codec's tag."""

    kind: str
    tag: str = ""
    body: bytes = b""

    @property
    def text(self) -> bytes:
        """Its last part in Redis."""
        return b"%b|%b" % (self.tag.encode(), self.body)


class Ended(NamedTuple):
    """How a message ended, at `at`, in seconds: with a result, or as a dead letter for a `reason`."""

    at: float
    result: KeptResult | None
    reason: str = ""


class DoneResult(NamedTuple):
    """The status of a message that is done. Times are seconds, `size` is that of its result in bytes."""

    ends: float
    at: float
    kind: str
    size: int


def read_ended(text: bytes) -> Ended | None:
    """Read what `await` tells of a message; None if it has not ended."""
    if not text:
        return None
    if text.startswith(b"x|"):
        _, ms, reason = text.split(b"|", 2)
        return Ended(int(ms) / 1000, None, reason.decode(errors="replace"))
    _, ms, kind, tag, body = text.split(b"|", 4)
    return Ended(int(ms) / 1000, KeptResult(kind.decode(), tag.decode(), body))


def read_done(text: bytes) -> DoneResult:
    """Read what `status` tells of a message that is done."""
    ends, at, kind, size = text.split(b"|")
    return DoneResult(int(ends) / 1000, int(at) / 1000, kind.decode(), int(size))


def read_progress(text: bytes) -> Progress | None:
    """Read what is kept of a message's progress; None if nothing is."""
    if not text:
        return None
    _, ms, done, total, note = text.split(b"|", 4)
    return Progress(float(done), float(total) if total else None, note.decode(errors="replace"), int(ms) / 1000)


def spell_progress(done: float, total: float | None, note: str) -> bytes:
    """Return what is kept of a message's progress. The note is one line, and is cut."""
    line = " ".join(note.split())[:MAX_NOTE]
    return f"{_number(done)}|{'' if total is None else _number(total)}|{line}".encode(errors="replace")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
