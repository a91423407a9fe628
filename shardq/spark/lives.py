"""Lives of queues: one that was deleted and recreated under its name is another; nothing of it was read yet."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from shardq.errors import QueueMissing
from shardq.ops.queue.state import QueueState
from shardq.protocol.replies import created_ms
from shardq.spark.connection import queue_of
from shardq.spark.options import Connecting, place_of

log = logging.getLogger("shardq")


def is_made_anew(track: Any, mark: Any) -> bool:
    """Whether the queue that a mark is of was deleted, and *track* is of a later one.

    Marks of older versions, and those that a user gives, may have no id: then their time shows it.
    """
    life = life_of(mark)
    if life is None:
        return bool(track.precedes(place_of(mark)))
    return life != track.life and created_ms(life) <= created_ms(track.life)


def life_of(mark: Any) -> str | None:
    """The id of the queue that a mark is of; None if the mark does not say it."""
    life = mark.get("id") if isinstance(mark, dict) else None
    return life if isinstance(life, str) and life.partition("-")[0].isdecimal() else None


def same_queue(options: Connecting, name: str, end: Mapping[str, Any]) -> QueueState:
    """The queue whose messages a consuming query held, as the offset *end* says.

    QueueMissing if it was deleted since then.

    One that was recreated is another queue. Offsets of older versions do not tell it.
    """
    state = queue_of(options, name)
    if end.get("ids", {}).get(name, state.view.id) != state.view.id:
        raise QueueMissing(f"queue {state.keys.name!r} was deleted and created again")
    return state


class Gone:
    """Names the queues that are gone in the log, each once until it is there again. In *text* `%r` is the name."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._names: set[str] = set()

    @contextmanager
    def left_out(self, name: str) -> Iterator[None]:
        """A block that does nothing more once it turns out that there is no queue of this *name*."""
        try:
            yield
            self._names.discard(name)
        except QueueMissing:
            self.tell(name)

    def tell(self, name: str) -> None:
        """Log that there is no queue of this *name*, unless that was done before."""
        if name not in self._names:
            log.warning(self._text, name)
        self._names.add(name)
