"""The effect of a journal's event on a message, by number: a table of events is looked at whole, not row by row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from shardq.extras import extra

with extra("jobs", "the table of jobs"):
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

WAITS: Final = ("written", "replaced", "nacked", "recovered", "lease_ended", "redriven", "hastened")
"""Afterwards the message waits, from its due time on if it has one."""
ENDS: Final = ("acked", "rejected", "dead", "expired", "cancelled", "purged", "vanished")
"""Afterwards the job has ended: these are the outcomes."""
LETTERS: Final = ("rejected", "dead")
"""The outcomes that leave a dead letter, which a redrive makes a message again."""
UNCOUNTS: Final = ("nacked", "recovered", "lease_ended")
"""They may say that the delivery before them does not count: then their count is lower than its."""
PASSIVE: Final = ("charged", "cancelling", "deleted")
"""The message stays what it is; a deleted one was a dead letter."""

CARRIED: Final = {
    "waiting": "carried waiting",
    "in flight": "carried in flight",
    "no room": "carried no room",
    "dead": "carried dead",
}
"""In the place of the events that earlier runs have read: the fate of the message, by the state of its open row."""

KINDS: Final = (*WAITS, "delivered", "no_room", *ENDS, *PASSIVE, *CARRIED.values())
"""The kinds by their numbers."""
_VALUES: Final = pa.array(KINDS, pa.string())


def numbers_of(kinds: pa.Array) -> Any:
    """Return the numbers of *kinds*, -1 for those that are of no message."""
    return pc.index_in(kinds, value_set=_VALUES).fill_null(-1).to_numpy(zero_copy_only=False)


def number_of(kind: str) -> int:
    """Return the number of one kind."""
    return KINDS.index(kind)


class Among:
    """A set of kinds: says of an array of numbers which are among them."""

    def __init__(self, kinds: Iterable[str]) -> None:
        self._is_in = np.isin(np.array(KINDS), list(kinds))

    def __call__(self, numbers: Any) -> Any:
        """Return an array of booleans."""
        return self._is_in[numbers]


waits: Final = Among((*WAITS, CARRIED["waiting"]))
holds: Final = Among(("delivered", CARRIED["in flight"]))
ends: Final = Among((*ENDS, CARRIED["dead"]))
is_passive: Final = Among(PASSIVE)
is_carried: Final = Among(CARRIED.values())
uncounts: Final = Among(UNCOUNTS)
leaves_letter: Final = Among((*LETTERS, CARRIED["dead"]))
