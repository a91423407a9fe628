"""Names and numbers of reports as texts: of tenants, of pairs, of shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

MAX_DIGITS: Final = 9
"""Digits of a share in per cent, behind the point: a share near 100 % is not called so."""
NO_NAME: Final = "(none)"
"""In place of a task, plan or tenant that a job has none of."""


def named(text: str | None) -> str:
    """The name of a tenant, task or plan."""
    return text or NO_NAME


def of_queue(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Callable[[str | None], str]:
    """Return what names the tenants of a row: with their queue, if the rows are of several."""
    several = len({each["queue"] for each in rows if each["queue"]}) > 1
    return lambda text: f"{row['queue']}: {named(text)}" if several else named(text)


def per_cent(share: float) -> str:
    """A share of one as per cent, with as many digits as an objective has.

    >>> per_cent(0.9987), per_cent(1.0), per_cent(0.25), per_cent(0.99999)
    ('99.87 %', '100 %', '25 %', '99.999 %')
    """
    digits = next((each for each in range(2, MAX_DIGITS) if round(share, each + 2) != 1.0 or share == 1.0), MAX_DIGITS)
    return f"{100 * share:.{digits}f}".rstrip("0").rstrip(".") + " %"
