"""Slots of cron lines and of intervals: which they are where clocks change, and what is refused."""

from __future__ import annotations

import sys
import zoneinfo
from datetime import UTC, datetime

import pytest

from shardq import ConfigError
from shardq.model.timetable import Timetable, timetable

MINUTE = 60_000
HOURS = 4 * 60 * MINUTE


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def told(times: Timetable, after: str, until: str) -> list[str]:
    return [times.told(slot) for slot in times.between(ms(after), ms(until))]


def test_a_time_that_the_clock_skips_is_when_it_goes_on_and_one_that_comes_twice_is_the_first() -> None:
    nightly = timetable("30 2 * * *", "Europe/Berlin", None)
    assert told(nightly, "2026-03-28T12:00", "2026-03-30T12:00") == [
        "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00",
    ]  # fmt: skip
    assert told(nightly, "2026-10-24T12:00", "2026-10-26T12:00") == [
        "2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00",
    ]  # fmt: skip


def test_each_hour_goes_on_as_time_does() -> None:
    hourly = timetable("0 * * * *", "Europe/Berlin", None)
    for day in ("2026-03-29", "2026-10-25"):
        found = hourly.between(ms(f"{day}T00:00") - 1, ms(f"{day}T06:00"))
        assert [slot - found[0] for slot in found] == [hour * 60 * MINUTE for hour in range(7)]


@pytest.mark.parametrize("line", ["30 2 * * *", "0 2,3 * * *", "*/20 * * * *", "0 */2 * * *", "15 1-3 * * *"])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"])
def test_slots_are_the_same_from_wherever_they_are_looked_for(line: str, zone: str) -> None:
    """A worker begins where the last one stopped: also in an hour that the clock skips or repeats."""
    times = timetable(line, zone, None)
    for day in ("2026-03-08", "2026-03-29", "2026-04-05", "2026-10-04", "2026-10-25", "2026-11-01"):
        begin, end = ms(f"{day}T00:00") - HOURS, ms(f"{day}T00:00") + 3 * HOURS
        slots = times.between(begin, end)
        assert slots == sorted({*slots})
        for start in range(begin, end, 15 * MINUTE):
            assert times.between(start, end) == [slot for slot in slots if slot > start]
            assert times.latest(begin, start, 3) == [slot for slot in slots if slot <= start][-3:]


def test_an_interval_counts_from_1970() -> None:
    times = timetable(None, "UTC", 300)
    assert times.between(0, 900_000) == [300_000, 600_000, 900_000]
    assert times.after(299_999) == 300_000
    assert times.after(300_000) == 600_000
    assert times.latest(0, 1_000_000, 2) == [600_000, 900_000]
    assert times.latest(600_000, 1_000_000, 9) == [900_000]
    assert str(times) == "every 300 s"


@pytest.mark.parametrize(
    ("line", "zone", "said"),
    [
        ("* * *", "UTC", "Wrong number of fields; it is minute, hour"),
        ("61 * * * *", "UTC", "Bad minute"),
        ("0 0 30 2 *", "UTC", "Bad day-of-month"),
        ("", "UTC", "must be text such as"),
        ("0 " * 200, "UTC", "must be text such as"),
        (5, "UTC", "must be text such as"),
        ("0 3 * * *", "Europe/Berln", "no time zone 'Europe/Berln'"),
        ("0 3 * * *", "../etc/passwd", "no time zone"),
        ("0 3 * * *", "Europe", "no time zone"),
        ("0 3 * * *", None, "must be the name of a time zone"),
    ],
)
def test_a_bad_line_or_zone_is_told(line: str, zone: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        timetable(line, zone, None)


@pytest.mark.parametrize("every", [0, -1, 1.5, True, 10**9])
def test_a_bad_interval_is_told(every: int) -> None:
    with pytest.raises(ConfigError, match="every must be a whole number"):
        timetable(None, "UTC", every)


def test_a_schedule_has_a_line_or_an_interval() -> None:
    for line, every in (("0 3 * * *", 5), (None, None)):
        with pytest.raises(ConfigError, match="and not both"):
            timetable(line, "UTC", every)


def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoneinfo, "available_timezones", set)
    with pytest.raises(ConfigError, match=r"no data of time zones here.*pip install"):
        timetable("0 3 * * *", "Europe/Nowhere", None)
    monkeypatch.setitem(sys.modules, "cronsim", None)
    with pytest.raises(ConfigError, match=r"pip install 'shardq\[cron\]' \(cronsim is missing\)"):
        timetable("0 3 * * *", "UTC", None)
    assert timetable(None, "UTC", 60).after(0) == 60_000
