"""Moments of reports as texts. They are UTC, as the days of the table of jobs are."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(at: float) -> str:
    """A moment to the second, in UTC.

    >>> moment(1_795_833_060.4)
    '2026-11-28 02:31:00'
    """
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"


def day(at: float) -> str:
    """A day, in UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"
