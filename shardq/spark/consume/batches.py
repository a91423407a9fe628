"""How many messages the next batch of a query may have: half as many after a failure, more after a success. No I/O.

>>> after = Batches(done=7).failed(200)
>>> after.room(10_000), after.succeeded().room(10_000)
(100, 200)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

MAX_HELD: Final = 100_000
"""Messages that a job holds at once."""


class Batches(NamedTuple):
    """The state of a query's batches: how many have succeeded, and how many rows the next one may have (0: any)."""

    done: int = 0
    most: int = 0

    def room(self, limit: int) -> int:
        """How many rows the next batch may have where *limit* is the most that the job wants."""
        return min(limit, self.most or limit)

    def succeeded(self) -> Batches:
        """The state after a batch that succeeded."""
        return Batches(self.done + 1, 2 * self.most if 2 * self.most < MAX_HELD else 0)

    def failed(self, size: int) -> Batches:
        """The state after a batch of this *size* that failed."""
        return Batches(self.done, max(1, size // 2))

    @classmethod
    def before(cls, end: Mapping[str, Any]) -> Batches:
        """The state before the micro-batch that ends at the offset *end*; older versions wrote nothing down."""
        return cls(end.get("done", 0), end.get("most", 0))

    @property
    def text(self) -> str:
        """How it is stored."""
        return f"{self.done} {self.most}"

    @classmethod
    def of(cls, stored: bytes | None) -> Batches:
        """The stored state; nothing is known if that is no text of ours."""
        try:
            done, most = map(int, (stored or b"").split())
        except ValueError:
            return cls()
        return cls(max(0, done), min(max(0, most), MAX_HELD))
