"""Producer sequences: a name and a number, by which Redis recognizes a call that it has done already.

A call that must not happen twice takes a sequence that no other call uses (source: Kafka's idempotent producer,
KIP-98, which has a producer id and a sequence number). `numbered` makes such calls, lua/producers.lua recognizes them.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import Final

import msgspec

REPEATED_FOR: Final = 3600.0
"""Seconds for which a call is tried again after a try that may have been executed."""

EXTRA_SECONDS: Final = 1.0
"""Seconds longer than the one before it that a call may be under way."""

LATE_SECONDS: Final = 120.0
"""Seconds after the last deadline at which a try may still arrive, for example from the buffers of a server that
hung."""


class ProducerSequence(msgspec.Struct):
    """A name and a number that counts up with each call.

    `name` is the field in which Redis remembers the last call. One call at a time uses a sequence. `numbered_at` is
    when that call got its number, in seconds of the local monotonic clock. Redis remembers the name until `kept_until`
    or longer; a call that `moves` that end touches more keys than others.
    """

    name: str
    number: int = 0
    numbered_at: float = 0.0
    kept_until: float = 0.0
    moves: bool = True


NO_SEQUENCE: Final = ProducerSequence("")
"""Stands for no sequence: Redis cannot recognize a repeated call, so a try that may have been executed is the last."""


class Sequences:
    """The producer sequences of one client and queue. *producer* is the nonce in their names. Threads share it."""

    __slots__ = ("_idle", "_numbers", "_producer")

    def __init__(self, producer: str) -> None:
        self._producer = producer
        self._idle: deque[ProducerSequence] = deque()  # its `pop` and `append` are atomic
        self._numbers = count()

    def take(self) -> ProducerSequence:
        """Return a sequence that no other call uses, with the number for this call. Give it back with `free`."""
        try:
            # No check before: another thread may take the last one in between. The one used last comes first, so a
            # client uses few, and Redis remembers as few.
            sequence = self._idle.pop()
        except IndexError:
            sequence = ProducerSequence(f"p:{self._producer}:{next(self._numbers)}")
        sequence.number += 1
        return sequence

    def free(self, sequence: ProducerSequence) -> None:
        """Let another call use *sequence*."""
        self._idle.append(sequence)
