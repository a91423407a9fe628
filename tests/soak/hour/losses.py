"""What promotions and restarts lost, and whether the level of durability allows that."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tests.levels import survives_kill, survives_promotion
from tests.soak.history import Broken
from tests.soak.hour.events import LostAllowed
from tests.soak.hour.spans import Span
from tests.soak.hour.violation import Kind

LEVEL: Final = re.compile(r"\b(none|process|disk|replica\(\d+\))(?!\w)")
KILL: Final = re.compile(r"\b(?:kill|restart)", re.IGNORECASE)
LOSES: Final = frozenset(
    (Kind.LOST, Kind.DOUBLED, Kind.ACKED_TWICE, Kind.CAME_BACK, Kind.TWO_LEASES, Kind.OUT_OF_ORDER)
)
"""What looks like a broken promise where a promotion lost what was done before it.

It may lose a write; then the message is gone, or stored again by a call without an answer. It may lose an ack or a
lease at any level, for these wait for no replica.
"""

RENUMBERED: Final = 60.0
"""Seconds after a promotion in which messages may have numbers that others had before it."""


@dataclass(frozen=True)
class Loss:
    """What was lost of a queue within the time of a promotion or restart."""

    queue: str
    kind: Kind
    text: str
    allowed: LostAllowed

    @property
    def level(self) -> str:
        """The level of durability of the queue; '' if nobody said."""
        found = LEVEL.search(self.allowed.why)
        return found[1] if found else ""

    @property
    def is_forbidden(self) -> bool:
        """Whether the table of docs/durability.md says that this level survives it."""
        if self.kind is not Kind.LOST:
            return False
        if not self.level:
            return True
        survives = survives_kill if KILL.search(self.allowed.by) else survives_promotion
        return survives(self.level)


class Windows:
    """The times in which each queue may lose something."""

    def __init__(self, allowed: Iterable[LostAllowed]) -> None:
        self._of: Mapping[str, list[LostAllowed]] = defaultdict(list)
        for each in allowed:
            self._of[each.queue].append(each)

    def loss(self, queue: str, kind: Kind, broken: Broken) -> Loss | None:
        """The loss that explains a broken promise, if one does."""
        begin, end = broken.done
        if kind is Kind.OUT_OF_ORDER:  # numbers that a promotion lost are given again
            begin -= RENUMBERED
        window = self.covering(queue, (begin, end)) if kind in LOSES else None
        return Loss(queue, kind, broken.text, window) if window else None

    def covering(self, queue: str, done: Span) -> LostAllowed | None:
        """The window in which something was done; done at a time that nobody knows, it was in none."""
        return next((each for each in self._of.get(queue, ()) if each.begin <= done[1] and done[0] <= each.until), None)
