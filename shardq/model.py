"""The values that users meet: settings, messages, deliveries, numbers. No I/O, no clock.

What there is one of per message is a Struct: made ten times as fast as a frozen dataclass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple, TypedDict, get_type_hints

import msgspec

from shardq.errors import ConfigError
from shardq.keys import MAX_STREAMS, shown

_MESSAGE_ID = re.compile(r"(\d{1,16}-\d{1,20})-(\d{1,4}|[dl])", re.ASCII)
MIN_LEASE: Final = 0.05
MAX_LEASE: Final = 7 * 86_400
"""For how many seconds a lease may last."""


class MessageId(NamedTuple):
    """A message id taken apart: entry id `<ms>-<n>` and the place where the body was stored.

    `n` counts a queue's messages, so ids never repeat within a queue; `ms` is the server's time of the write.
    """

    entry: str
    place: str

    @classmethod
    def parse(cls, text: str) -> MessageId:
        """Parse what `write` returned; ConfigError if it is something else."""
        match = _MESSAGE_ID.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise ConfigError("message_id must be what write() returned, such as '1732150000000-42-7'")
        return cls(match[1], match[2])

    @property
    def written_ms(self) -> int:
        """When the message was written: ms since the epoch by the server's clock."""
        return int(self.entry.partition("-")[0])


def whole(name: str, value: int, low: int, high: int, why: str = "") -> int:
    """*value* if it is a whole number from *low* to *high*, else ConfigError."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        because = f" ({why})" if why else ""
        raise ConfigError(f"{name} must be a whole number from {low:,} to {high:,}{because}, not {shown(value)}")
    return value


def _name(name: str, value: str) -> None:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{name} must be the name of a key or group, not {shown(value)}")


def seconds(name: str, value: float, low: float, high: float) -> float:
    """*value* if it is a number of seconds from *low* to *high*, else ConfigError."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(f"{name} must be a number of seconds from {low:,.15g} to {high:,.15g}, not {shown(value)}")
    return float(value)


def lease_time(name: str, value: float) -> float:
    """*value* if a lease may last so many seconds, else ConfigError."""
    return seconds(name, value, MIN_LEASE, MAX_LEASE)


class Setting(NamedTuple):
    """What is known of a setting: `check` raises ConfigError for a bad value.

    `stored` makes of a good value what Redis keeps, and `parsed` makes the value of that again.
    """

    check: Callable[[str, Any], object]
    stored: Callable[[Any], str | int]
    parsed: Callable[[str], Any]


def _whole(low: int, high: int, why: str = "") -> Setting:
    return Setting(lambda name, value: whole(name, value, low, high, why), int, int)


def _seconds(low: float, high: float) -> Setting:
    """A time, which Redis keeps in ms."""
    return Setting(
        lambda name, value: seconds(name, value, low, high),
        lambda value: round(value * 1000),
        lambda text: int(text) / 1000,
    )


_NAME: Final = Setting(_name, str, str)


def _or_none(setting: Setting) -> Setting:
    return setting._replace(check=lambda name, value: value is None or setting.check(name, value))


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """A queue's settings. They are the queue's: stored in Redis when it is created, changed by `configure`.

    Times are seconds. `max_len`, `max_dead`, `max_dedup` (dedup keys) and `max_tallies` (partitions of bulk writes)
    bound memory; at a bound a call is refused (or, for dead letters, waits), never is a message dropped.

    Fairness (docs/fairness.md), per shard key, 0 for none: `window` is how many undelivered messages it may hold in the
    shared streams while many are active, the rest waits in its own overflow; `max_in_flight` how many of its messages
    may be in flight, `max_backlog` how many may wait or be delayed. With `parents`, "acct-7/user-9" counts under
    "acct-7".

    `journal` is how many events are kept of what happens to messages, 0 for none (docs/journal.md).

    """

    streams: Annotated[int, _whole(1, MAX_STREAMS)] = 64
    streams_per_shard: Annotated[int, _whole(1, MAX_STREAMS)] = 4
    visibility_timeout: Annotated[float, _seconds(MIN_LEASE, MAX_LEASE)] = 30.0
    max_deliveries: Annotated[int, _whole(2, 1_000_000, why="a lost reply counts as a delivery")] = 16
    max_len: Annotated[int, _whole(0, 2**40)] = 0
    max_dead: Annotated[int, _whole(1, 2**40)] = 100_000
    dedup_window: Annotated[float, _seconds(1, 30 * 86_400)] = 600.0
    max_dedup: Annotated[int, _whole(1, 2**40)] = 1_000_000
    max_tallies: Annotated[int, _whole(1, 2**40)] = 1_000_000
    window: Annotated[int, _whole(0, 1_000_000)] = 0
    max_in_flight: Annotated[int, _whole(0, 2**40)] = 0
    max_backlog: Annotated[int, _whole(0, 2**40)] = 0
    parents: Annotated[int, _whole(0, 1)] = 0
    journal: Annotated[int, _whole(0, 10_000_000)] = 0
    ttl: Annotated[float | None, _or_none(_seconds(1, 10 * 365 * 86_400))] = None
    legacy_stream: Annotated[str | None, _or_none(_NAME)] = None
    legacy_group: Annotated[str | None, _or_none(_NAME)] = None

    def __post_init__(self) -> None:
        """Refuse what cannot work, before anything is sent."""
        for name, setting in _SETTINGS.items():
            setting.check(name, getattr(self, name))
        if (self.legacy_stream is None) != (self.legacy_group is None):
            raise ConfigError("legacy_stream and legacy_group go together: name the stream and its consumer group")

    def settings(self) -> list[str | int]:
        """Names and values as they are stored in Redis: times in ms, unset ones left out."""
        flat: list[str | int] = []
        for name, setting in _SETTINGS.items():
            value = getattr(self, name)
            if name != "streams" and value is not None:
                flat += [name, setting.stored(value)]
        return [*flat, "fair", 1] if self.window or self.max_in_flight or self.max_backlog else flat

    @classmethod
    def from_settings(cls, meta: Mapping[str, str], streams: int) -> QueueConfig:
        """Read back what `settings` wrote; fields that are missing get their defaults."""
        values = {name: setting.parsed(meta[name]) for name, setting in _SETTINGS.items() if name in meta}
        return cls(**{**values, "streams": streams})


_SETTINGS: Final[Mapping[str, Setting]] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(QueueConfig, include_extras=True).items()
}


class QueueSettings(TypedDict, total=False):
    """The keyword arguments of `Client.queue`: the fields of `QueueConfig`, any of them.

    For type checkers, which cannot take them from there; a test compares the two.
    """

    streams: int
    streams_per_shard: int
    visibility_timeout: float
    max_deliveries: int
    max_len: int
    max_dead: int
    dedup_window: float
    max_dedup: int
    max_tallies: int
    window: int
    max_in_flight: int
    max_backlog: int
    parents: int
    journal: int
    ttl: float | None
    legacy_stream: str | None
    legacy_group: str | None


class Message(msgspec.Struct, frozen=True):
    """One message for `write_many`; the fields mean what they mean for `write`. Times are seconds from the write."""

    payload: Any
    shard_key: str | bytes
    delay: float | None = None
    deadline: float | None = None
    dedup_key: str | None = None
    headers: Mapping[str, str] | None = None

    def __repr__(self) -> str:
        """Without payload and headers."""
        return (
            f"Message(shard_key={self.shard_key!r}, delay={self.delay!r}, deadline={self.deadline!r}, "
            f"dedup_key={self.dedup_key!r})"
        )


@dataclass(frozen=True, slots=True)
class QueueStats:
    """One queue at one instant, from one atomic script. Ages are seconds by the server's clock.

    `oldest_age`: for how long the message has been deliverable that waits longest, since it was written, came due, was
    given back or lost its holder. Where messages wait in very many places (shard keys, streams with redeliveries) only
    some are looked at. `streams` has the undelivered messages of each; those of more than 1,000 streams are asked for a
    moment later.
    """

    queue: str
    time: float
    backlog: int
    in_flight: int
    delayed: int
    dead: int
    oldest_age: float | None
    streams: tuple[int, ...]
    wanted: int = 0
    written: int = 0
    acked: int = 0
    expired: int = 0
    cancelled: int = 0
    purged: int = 0
    buried: int = 0
    vanished: int = 0
    legacy: int = 0
    held_back: int = 0


class Received(msgspec.Struct, frozen=True):
    """A delivery as Redis handed it out: the body, and the proof of the lease.

    `deadline` is on the local monotonic clock: from then on do not believe in the lease. `pickup_delay` is for how many
    seconds it was deliverable, since it was written, came due, was given back or lost its holder, by the server's clock
    alone.
    """

    message_id: str
    shard_key: str | bytes
    count: int
    deadline: float
    body: bytes
    tag: str
    headers: Mapping[str, str]
    last_error: str
    stream: int | None
    pickup_delay: float
    token: str
    origin: str = ""
    fields: Mapping[str, bytes] | None = None

    def __repr__(self) -> str:
        """Which message; never its payload or token."""
        return f"Received({self.message_id}, shard_key={self.shard_key!r}, count={self.count})"
