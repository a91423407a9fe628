"""The options of a report beside its time."""

from __future__ import annotations

from typing import NamedTuple


class Options(NamedTuple):
    """The options of a report.

    `objective` is the share of jobs that are to begin within `within` seconds; `price` is that of one slot for one
    second, in `currency`; `weeks` is how many weeks before count as usual; `rows` is how many rows a table has.
    """

    objective: float = 0.99
    within: float = 5.0
    price: float = 0.00001
    currency: str = "USD"
    weeks: int = 4
    rows: int = 20
