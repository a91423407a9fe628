"""The record of a Spark job's failed batches in a message. No I/O.

A job fails as a whole, and mostly for no fault of its messages: its sink is down. So a failed batch costs them nothing
but time. Yet one message may be the cause, each time. It is found by halves: batches become smaller until it stands
alone. The facts of a message stand in front of its last error, so that they outlive the driver.

A failure says something about a message only if another batch of the same query has succeeded since the message's
failure before: then the two are *apart*, and it is no outage that lasts.

>>> first = Failures().after(Batch("q", done=0, rows=200))
>>> first.text("ValueError: no number")
'[batches 1 apart 0 alone 0 row 1 rows 200 done 0 of q] ValueError: no number'
>>> again = Failures.of(first.text("ValueError: no number")).after(Batch("q", done=1, rows=100))
>>> (again.apart, again.most, again.is_cause)
(1, 50, False)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

T = TypeVar("T")
FAILURES: Final = 3
"""A message is the cause if this many batches failed with it, each apart from the one before; the last two it alone."""
MAX_DELAY_SECONDS: Final = 60
"""The longest delay, in seconds."""

_RECORD: Final = re.compile(
    r"\[batches (\d{1,9}) apart (\d{1,9}) alone (\d{1,9}) row (\d{1,9}) rows (\d{1,9}) done (\d{1,15}) of (\w{1,32})\] "
)


@dataclass(frozen=True, slots=True)
class FailedBatch:
    """A batch that failed: the query's name, how many of the query's batches had succeeded before, and its rows."""

    query: str
    done: int
    rows: int


@dataclass(frozen=True, slots=True)
class Failures:
    """The failed batches in which a message stood."""

    batches: int = 0
    """How many."""
    apart: int = 0
    """How many of them were apart from the one before."""
    alone: int = 0
    """In how many of the last ones, one after the other, it was alone."""
    row: int = 0
    """How many the last ones in a row are that are not apart."""
    rows: int = 0
    """How many rows the last one had that is apart. In an outage batches become small, which says nothing."""
    done: int = 0
    query: str = ""

    @classmethod
    def of(cls, last_error: str) -> Failures:
        """The state in the last error of a message; nothing, if it comes from elsewhere."""
        found = _RECORD.match(last_error)
        if found is None:
            return cls()
        batches, apart, alone, row, rows, done = map(int, found.groups()[:-1])
        return cls(batches, apart, alone, row, rows, done, found[7])

    def after(self, batch: FailedBatch) -> Failures:
        """The state once another *batch* has failed with the message."""
        apart = self.batches > 0 and self.query == batch.query and self.done < batch.done
        return Failures(
            batches=self.batches + 1,
            apart=self.apart + apart,
            alone=self.alone + 1 if batch.rows == 1 else 0,
            row=1 if apart else self.row + 1,
            rows=batch.rows if apart or not self.batches else self.rows,
            done=batch.done,
            query=batch.query,
        )

    @property
    def delay(self) -> float:
        """For how many seconds it waits for its next batch."""
        return float(min(MAX_DELAY_SECONDS, 2 ** min(self.row - 1, 30)))

    @property
    def most(self) -> int:
        """How many rows its next batch may have: half of the last one that is apart. 0: it is no suspect."""
        return max(1, self.rows // 2) if self.apart else 0

    @property
    def is_cause(self) -> bool:
        """Whether it is the message that makes batches fail."""
        return self.apart >= FAILURES - 1 and self.alone >= 2

    def text(self, cause: str) -> str:
        """The last error of the message, from which `of` reads this again."""
        return (
            f"[batches {self.batches} apart {self.apart} alone {self.alone} row {self.row} rows {self.rows} "
            f"done {self.done} of {self.query}] {cause}"
        )

    def reason(self, cause: str) -> str:
        """The reason for which the message is rejected: the job's text."""
        return f"{cause} ({self.batches} batches failed with this message, the last with it alone, and others did not)"


def suspects(held: Sequence[T], last_error: Callable[[T], str], query: str) -> list[T]:
    """Those of *held* that are to have the next batch of *query* for themselves; none if there are no suspects.

    They are as many as the one allows that was in the smallest batch, so that none that is innocent is drawn into it.
    Facts of other queries count for nothing here: last errors may have texts of tenants in them, and a tenant that
    could make suspects by such a text would make all batches small.
    """
    known = [(Failures.of(last_error(each)), each) for each in held]
    found = [(failures.most, each) for failures, each in known if failures.most and failures.query == query]
    found.sort(key=lambda row: row[0])
    return [each for _, each in found[: found[0][0]]] if found else []
