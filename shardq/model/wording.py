"""How numbers, times and sizes are written for people: in verdicts, and on each screen, the same."""

from __future__ import annotations

import math
from datetime import UTC, datetime, tzinfo
from typing import Final

DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
UNKNOWN_NUMBER: Final = "-"
"""In place of a number that nobody knows."""

_HALF_A_DAY: Final = 43_200
_DAY: Final = 86_400
_YEAR: Final = 300 * _DAY
_LARGE_UNITS: Final = ((1e6, "M"), (1e9, "G"), (1e12, "T"))
_SPANS: Final = ((119.5, 1, "s"), (3_570, 60, "min"), (2 * _DAY, 3_600, "h"), (math.inf, _DAY, "d"))
_SIZES: Final = ("B", "kB", "MB", "GB", "TB")


def number(count: float) -> str:
    """Return a whole number with its thousands apart.

    >>> number(13097)
    '13,097'
    """
    return f"{round(count):,}"


def short_number(count: float) -> str:
    """Return a number in at most seven letters, for a column.

    >>> short_number(999_999), short_number(1_240_000), short_number(35_000_000)
    ('999,999', '1.2 M', '35 M')
    """
    if count < 999_999.5:
        return number(count)
    one, unit = next((one, unit) for one, unit in _LARGE_UNITS if count < 999.5 * one or unit == "T")
    return f"{count / one:.1f} {unit}" if count < 9.95 * one else f"{count / one:,.0f} {unit}"


def plural(count: int, noun: str, nouns: str = "") -> str:
    """Return a number of things.

    >>> plural(1, "tenant"), plural(2000, "tenant"), plural(2, "try", "tries")
    ('1 tenant', '2,000 tenants', '2 tries')
    """
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def span(seconds: float | None) -> str:
    """Return a length of time in one unit, in at most seven letters.

    >>> span(0.02), span(0.5), span(42), span(480), span(9000), span(200_000)
    ('20 ms', '0.5 s', '42 s', '8 min', '2.5 h', '2 d')
    """
    if seconds is None:
        return UNKNOWN_NUMBER
    if not math.isfinite(seconds):
        return "never"
    seconds = max(0.0, seconds)
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    one, unit = next((one, unit) for below, one, unit in _SPANS if seconds < below)
    value = seconds / one
    decimals = 1 if unit in "sh" and value < 9.95 else 0
    return f"{value:,.{decimals}f} {unit}"


def age(seconds: float) -> str:
    """Return how long ago something was, for a column.

    >>> age(2.1), age(0.02), age(-0.3), age(180)
    ('2 s', '0 s', '0 s', '3 min')
    """
    return span(seconds) if seconds >= 9.95 else f"{max(0.0, seconds):.0f} s"


def moment(at: float | None, now: float, zone: tzinfo | None = None) -> str:
    """Return when something was or will be: a time, the day of this week with a time, or the date.

    The times are those of the process's time zone, or of another *zone*.

    >>> from datetime import UTC
    >>> [moment(at, 1_795_833_060, UTC) for at in (1_795_831_742, 1_795_700_000, 1_795_000_000, 1_700_000_000)]
    ['02:09', 'Thursday 13:33', '18 Nov', '14 Nov 2023']
    """
    return _moment(at, now, zone, None)


def short_moment(at: float | None, now: float, zone: tzinfo | None = None) -> str:
    """Return `moment` in at most eleven letters, for a column: the day of the week as `Thu`."""
    return _moment(at, now, zone, 3)


def _moment(at: float | None, now: float, zone: tzinfo | None, letters: int | None) -> str:
    if at is None:
        return UNKNOWN_NUMBER
    if not math.isfinite(at):
        return "never"
    try:
        then = datetime.fromtimestamp(at, zone)
    except (OverflowError, OSError, ValueError):
        return "never"
    apart = abs(now - at)
    if apart < _HALF_A_DAY:
        return f"{then:%H:%M}"
    if apart < 6 * _DAY:
        return f"{DAYS[then.weekday()][:letters]} {then:%H:%M}"
    date = f"{then.day} {MONTHS[then.month - 1]}"
    return date if apart < _YEAR else f"{date} {then.year}"


def date_and_time(at: float, zone: tzinfo | None = None) -> str:
    """Return a moment in full, in the process's time zone; `...Z` with *zone* UTC.

    >>> date_and_time(1_795_833_060, UTC)
    '2026-11-28 02:31:00Z'
    """
    return f"{datetime.fromtimestamp(at, zone):%Y-%m-%d %H:%M:%S}{'Z' if zone is UTC else ''}"


def ends_at(at: float | None, zone: tzinfo | None = None) -> str:
    """Return the end of a pause or limit: its date and time, or `resumed` if it has none; '' for None."""
    if at is None:
        return ""
    return "resumed" if math.isinf(at) else date_and_time(at, zone)


def share(part: float) -> str:
    """Return a share of one as per cent.

    >>> share(0.984), share(0.012), share(0.0002), share(0)
    ('98 %', '1.2 %', '<0.1 %', '0 %')
    """
    percent = 100 * part
    if 0 < percent < 0.05:
        return "<0.1 %"
    return f"{percent:.1f} %" if 0 < percent < 9.95 else f"{percent:.0f} %"


def rate(a_second: float | None) -> str:
    """Return how many a second.

    >>> rate(1234.5), rate(12.4), rate(1.25), rate(0.034), rate(0)
    ('1,234/s', '12/s', '1.2/s', '0.03/s', '0/s')
    """
    if a_second is None:
        return UNKNOWN_NUMBER
    decimals = 0 if a_second >= 9.95 or a_second == 0 else 1 if a_second >= 0.995 else 2
    return f"{a_second:,.{decimals}f}/s"


def size(octets: float) -> str:
    """Return how large something is.

    >>> size(512 * 1024**2), size(4 * 1024**3), size(1500), size(3)
    ('512 MB', '4 GB', '1.5 kB', '3 B')
    """
    power = next(power for power, unit in enumerate(_SIZES) if octets < 1000 * 1024**power or unit == "TB")
    octets, unit = octets / 1024**power, _SIZES[power]
    is_whole = octets >= 9.95 or abs(octets - round(octets)) < 0.05
    return f"{octets:.0f} {unit}" if is_whole else f"{octets:.1f} {unit}"
