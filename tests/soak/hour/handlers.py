"""Handlers of the hour's workers, which note what they are given and how they end.

`shardq worker tests.soak.hour.handlers:handle` finds the folder for its notes in SHARDQ_HOUR_NOTES.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
from functools import cache
from pathlib import Path
from typing import Any, Final

from shardq import Nack, Reject
from tests.soak.hour.notes import Notes

FOLDER: Final = "SHARDQ_HOUR_NOTES"
"""The variable with the folder of the history."""

EARLIER: Final = 60.0
"""Seconds: a handler does not know when its message was asked for, but not before that."""

GIVEN_BACK: Final = 0.05
"""Seconds until what a handler gives back is tried again."""

BACKOFF: Final = 0.1
"""Seconds until what has failed is tried again."""

_numbers = itertools.count()


@cache
def notes_of(queue: str) -> Notes:
    """This process's notes on a queue."""
    return Notes(Path(os.environ[FOLDER]), f"w{os.getpid()}-{queue}", queue)


def handle(delivery: Any) -> Any:
    """A plain function: it takes a moment, and sometimes fails in one way or another."""
    number = begun(delivery, delivery.payload)
    time.sleep(random.uniform(0, 0.05))
    return _ended(delivery, number)


async def handle_async(delivery: Any) -> Any:
    """The same in an event loop."""
    number = begun(delivery, delivery.payload)
    await asyncio.sleep(random.uniform(0, 0.05))
    return _ended(delivery, number)


def begun(delivery: Any, value: str) -> int:
    """Note that a handler has a message; the number of that delivery."""
    notes, number, at = notes_of(delivery.queue.name), next(_numbers), time.monotonic()
    until = at + delivery.remaining
    notes.add(
        "got", by=notes.name, n=number, id=delivery.message_id, value=value, count=delivery.count,
        asked=at - EARLIER, at=at, until=until, ends=until + EARLIER, batch=0,
    )  # fmt: skip
    return number


def _ended(delivery: Any, number: int) -> str | None:
    """Return, or raise, as the draw has it. What the worker's call then says, nobody hears."""
    notes, draw = notes_of(delivery.queue.name), random.random()
    verb = "reject" if draw < 0.003 else "nack" if draw < 0.02 else "ack"
    delay = 0.0 if verb != "nack" else GIVEN_BACK if draw < 0.01 else BACKOFF
    notes.add("settling", by=notes.name, n=number, verb=verb, at=time.monotonic(), delay=delay)
    match verb:
        case "reject":
            raise Reject("soak")
        case "nack" if draw < 0.01:
            raise Nack(GIVEN_BACK)
        case "nack":
            raise ValueError("soak")
    return f"done {delivery.payload}"
