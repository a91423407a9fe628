"""The times of a schedule: those of a cron line in a time zone, or each time that its seconds are over.

Such a time is called a slot, and is here a number of ms since 1970. Slots of `every` are the multiples of their
interval since 1970, so all workers know the same ones. Those of cron are cronsim's (Debian's cron): 02:30 on the night
on which the clock skips that time is when the clock continues, and where it comes twice it is the first one.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final

import msgspec

from shardq.arguments import shown, whole
from shardq.errors import ConfigError
from shardq.extras import extra, install

MAX_EVERY: Final = 366 * 86_400
MAX_CRON: Final = 200
"""The longest cron line, in characters."""
_YEARS: Final = 30 * 366 * 86_400 * 1000
"""How far back slots are looked for, in ms: each cron line that has any has one within this time."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Timetable(msgspec.Struct, frozen=True, omit_defaults=True):
    """A cron line *cron* with its zone *tz*, or an interval of *every* seconds.

    Make it by `timetable`, which checks it.
    """

    cron: str = ""
    tz: str = "UTC"
    every: int = 0

    def __str__(self) -> str:
        """Show it as it was given."""
        return f"cron {self.cron!r} in {self.tz}" if self.cron else f"every {self.every} s"

    def after(self, at: int) -> int | None:
        """Return the first slot after *at*; None if there is none within 50 years."""
        return next(self._from(at), None)

    def between(self, after: int, until: int) -> list[int]:
        """Return the slots after *after*, up to and with *until*."""
        found = []
        for slot in self._from(after):
            if slot > until:
                break
            found.append(slot)
        return found

    def latest(self, after: int, until: int, most: int) -> list[int]:
        """Return the last slots after *after*, up to and with *until*, *most* of them at most."""
        if self.every:
            step = self.every * 1000
            return [slot for slot in range((until // step - most + 1) * step, until + 1, step) if slot > after]
        # From a time that is ever longer ago, so that of a year of minutes only the last ones are gone through.
        span, found = most * 60_000, list[int]()
        while True:
            begins = max(after, until - span)
            found = self.between(begins, until)
            if len(found) >= most or begins == after or span > _YEARS:
                return found[-most:]
            span *= 4

    def told(self, slot: int) -> str:
        """Return a slot as a text of ISO 8601, with the offset that the zone has then."""
        return _moment(slot, self._zone()).isoformat()

    def _from(self, at: int) -> Iterator[int]:
        if self.every:
            step = self.every * 1000
            slot = (at // step + 1) * step
            while True:
                yield slot
                slot += step
        last = at
        for moment in _cronsim().CronSim(self.cron, _moment(at, self._zone())):
            slot = round((moment - _EPOCH) / timedelta(milliseconds=1))
            # Where the clock was changed cronsim may begin before `at`, or come to one moment twice.
            if slot > last:
                last = slot
                yield slot

    def _zone(self) -> tzinfo:
        return UTC if self.tz == "UTC" else _zones().ZoneInfo(self.tz)


def timetable(cron: str | None, tz: str, every: int | None) -> Timetable:
    """Return the times of a *cron* line in the zone *tz*, or of an interval of *every* whole seconds.

    ConfigError if bad.
    """
    if (cron is None) == (every is None):
        raise ConfigError("a schedule has a cron line, or every=seconds, and not both")
    if every is not None:
        return Timetable(every=whole("every", every, 1, MAX_EVERY))
    if not isinstance(cron, str) or not 1 <= len(cron) <= MAX_CRON:
        raise ConfigError(f"a cron line must be text such as '0 3 * * *', not {shown(cron)}")
    _check_zone(tz)
    found = Timetable(cron, tz)
    cronsim = _cronsim()
    try:
        has_slot = found.after(0) is not None
    except cronsim.CronSimError as error:
        raise ConfigError(
            f"the cron line {shown(cron)} is none: {error}; it is minute, hour, day of the month, month and day of the "
            "week, such as '0 3 * * *'"
        ) from None
    if not has_slot:
        raise ConfigError(f"the cron line {shown(cron)} has no time that ever comes")
    return found


def _check_zone(tz: str) -> None:
    if not isinstance(tz, str) or not tz:
        raise ConfigError(f"tz must be the name of a time zone, such as 'Europe/Berlin', not {shown(tz)}")
    if tz == "UTC":
        return
    zoneinfo = _zones()
    try:
        zoneinfo.ZoneInfo(tz)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        if not zoneinfo.available_timezones():
            raise ConfigError(
                f"there is no data of time zones here, so tz={tz!r} is unknown: {install('cron')} (or tzdata)"
            ) from None
        raise ConfigError(f"there is no time zone {shown(tz)}; one is called 'Europe/Berlin'") from None


def _zones() -> Any:
    import zoneinfo  # only here: it looks for its data when it is imported, and most queues have no schedules

    return zoneinfo


def _moment(at: int, zone: tzinfo) -> datetime:
    return (_EPOCH + timedelta(milliseconds=at)).astimezone(zone)


def _cronsim() -> Any:
    with extra("cron", "a cron line"):
        import cronsim
    return cronsim
