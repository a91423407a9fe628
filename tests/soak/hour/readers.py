"""Plain consumers of the hour: they read, ack, extend, give back, and outlive every error of the backend."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from shardq import Queue
from tests.soak.hour.notes import Notes
from tests.soak.load import Consumer, Habits, Unanswered

T = TypeVar("T")
HABITS: Final = Habits(tenants=20, batch=10, lease=3.0, delay=0.1, late=0.005, nack=0.01, reject=0.003, extend=0.02)
"""How they behave: most settle at once, a few too late."""

REST: Final = 0.2
"""Seconds after a read that was not answered."""


class Reader(Consumer):
    """A consumer whose calls are noted."""

    def __init__(self, queue: Queue, notes: Notes, habits: Habits, stop: threading.Event) -> None:
        super().__init__(queue, notes, habits)
        self._notes, self._stop = notes, stop

    def _ask(self, verb: str, call: Callable[[], T]) -> T:
        try:
            return self._notes.ask(verb, call)
        except Unanswered:
            if verb == "read_many":
                self._stop.wait(REST)
            raise


def read(queue: Queue, notes: Notes, seed: int, stop: threading.Event) -> None:
    """Consume until told to stop."""
    Reader(queue, notes, replace(HABITS, seed=seed), stop).run(stop)
