"""The settings of a queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_type_hints

import msgspec

from shardq.arguments import MAX_LEASE, MIN_LEASE, check_known, mapping, one_of, rate, seconds, shown, whole
from shardq.errors import ConfigError
from shardq.model.partitions import KIND, Partitions, check_partitions, is_parted, map_of, read_of
from shardq.model.shares import SHARED_SETTINGS, WHOLE_FIELD, WHOLE_KIND, shares, whole_of, whole_text
from shardq.sharding import MAX_STREAMS

KeyScope = Literal["shard_key", "queue"]
Fair = Literal["time", "messages"]


def _check_name(name: str, value: str) -> None:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{name} must be the name of a key or group, not {shown(value)}")


def _check_group(name: str, value: str) -> None:
    _check_name(name, value)
    if len(value.split()) != 1 or value.strip() != value:
        raise ConfigError(f"{name} must have no blanks, not {shown(value)}")


class Setting(NamedTuple):
    """How a setting is checked and stored. `check` raises ConfigError for a bad value.

    `stored` turns a good value into what Redis keeps; `parsed` turns that into the value again. `kind` says in Lua what
    Redis may keep, since who calls a function by hand is not checked here: see lua/arguments.lua.
    """

    check: Callable[[str, Any], object]
    stored: Callable[[Any], str | int]
    parsed: Callable[[str], Any]
    kind: str


def _number_kind(low: float, high: float) -> str:
    return f"{{'^%d+$', {len(str(round(high)))}, {round(low)}, {round(high)}}}"


def _whole_setting(low: int, high: int, why: str = "") -> Setting:
    return Setting(lambda name, value: whole(name, value, low, high, why), int, int, _number_kind(low, high))


def _seconds_setting(low: float, high: float) -> Setting:
    """Return a setting that is a time in seconds. Redis keeps it in ms."""
    return Setting(
        lambda name, value: seconds(name, value, low, high),
        lambda value: round(value * 1000),
        lambda text: int(text) / 1000,
        _number_kind(low * 1000, high * 1000),
    )


def _word_setting(*words: str) -> Setting:
    return Setting(lambda name, value: one_of(name, value, words), str, str, f"{{' {' '.join(words)} '}}")


_RATE_SETTING: Final = Setting(
    rate,
    lambda value: int(value) if value == int(value) else repr(float(value)),
    float,
    "{'^%d+%.?%d*$', 24, 0, 1000000}",
)
_PARTITIONS_SETTING: Final = Setting(check_partitions, map_of, Partitions.parse, KIND)
_NAME_SETTING: Final = Setting(_check_name, str, str, "{'.', 4096}")
_GROUP_SETTING: Final = Setting(_check_group, str, str, "{'^%S+$', 4096}")
"""The rules of a queue have it as a word (lua/rules.lua)."""


def _or_none(setting: Setting) -> Setting:
    return setting._replace(check=lambda name, value: value is None or setting.check(name, value))


class QueueConfig(msgspec.Struct, frozen=True):
    """The settings of a queue. Redis stores them when the queue is created; `configure` changes them.

    Times are seconds. `max_len`, `max_dead`, `max_dedup` (dedup keys) and `max_bulk_offsets` (partitions of bulk
    writes) bound memory. At a bound a call is refused (or a dead letter waits for room), but no message is dropped. No
    shard key may have more than four times what is free of a bound, so one alone gets four fifths of it, and the last
    4 % are for those who have hardly any (docs/limits.md). With `drop_dead` = 1 its oldest dead letter is deleted for
    its new one instead. Dead letters are also deleted once they are `dead_ttl` seconds old.

    Fairness settings (docs/fairness.md) are limits for each shard key; 0 means no limit. `window`, by default 1, is how
    many undelivered messages it may have in the shared streams while many shard keys are active; its other messages
    wait in its own overflow. `max_in_flight` is how many of its messages may be in flight, and `max_backlog` how many
    may wait or be delayed. `rate` is how many may be delivered in a second, `burst` how many of these at once (0: those
    of one second). With `parents`, "acct-7/user-9" counts under "acct-7".

    `fair` says what a turn costs: by default the "time" that the work on its messages takes, else its "messages" alone.

    `key_scope` says whose a dedup key or unique key is: with "shard_key" each shard key has its own, with "queue" all
    writers share them (docs/unique.md).

    `total_in_flight`, `total_rate` and `total_burst` are the same limits for the whole queue (docs/limits.md).

    `journal` is how many events the queue's journal keeps, 0 for no journal (docs/journal.md).

    Results of messages are kept for `result_ttl` seconds, or not at all by default (docs/results.md): each has at most
    `max_result_size` bytes, and all together take at most `max_result_bytes` of memory.

    `max_schedules` is how many schedules users may store, by default none (docs/schedules.md).

    `partitions` is over how many parts the queue is spread, each in a slot of its own of a cluster. Each has its
    part of the bounds and limits of the whole queue (docs/limits.md).

    `streams` is the number of shared streams, and each shard key may use `streams_per_shard` of them
    (docs/planning.md). A read leases a message for `visibility_timeout` seconds, and after `max_deliveries` it becomes
    a dead letter. A dedup key is remembered for `dedup_window` seconds. A queue that nobody used for `ttl` seconds
    vanishes with all that it holds; by default none does. `legacy_stream`, with its consumer group `legacy_group`, is a
    plain stream of an older program, whose messages the queue delivers, too.

    >>> QueueConfig(max_len=10_000, rate=5).visibility_timeout
    30.0
    """

    streams: Annotated[int, _whole_setting(1, MAX_STREAMS)] = 64
    streams_per_shard: Annotated[int, _whole_setting(1, MAX_STREAMS)] = 4
    visibility_timeout: Annotated[float, _seconds_setting(MIN_LEASE, MAX_LEASE)] = 30.0
    max_deliveries: Annotated[int, _whole_setting(2, 1_000_000, why="a lost reply counts as a delivery")] = 16
    max_len: Annotated[int, _whole_setting(0, 2**40)] = 0
    max_dead: Annotated[int, _whole_setting(1, 2**40)] = 100_000
    drop_dead: Annotated[int, _whole_setting(0, 1)] = 0
    dead_ttl: Annotated[float | None, _or_none(_seconds_setting(1, 10 * 365 * 86_400))] = None
    dedup_window: Annotated[float, _seconds_setting(1, 30 * 86_400)] = 600.0
    max_dedup: Annotated[int, _whole_setting(1, 2**40)] = 1_000_000
    key_scope: Annotated[KeyScope, _word_setting(*get_args(KeyScope))] = "shard_key"
    max_bulk_offsets: Annotated[int, _whole_setting(1, 2**40)] = 1_000_000
    window: Annotated[int, _whole_setting(0, 1_000_000)] = 1
    fair: Annotated[Fair, _word_setting(*get_args(Fair))] = "time"
    max_in_flight: Annotated[int, _whole_setting(0, 2**40)] = 0
    max_backlog: Annotated[int, _whole_setting(0, 2**40)] = 0
    rate: Annotated[float, _RATE_SETTING] = 0.0
    burst: Annotated[int, _whole_setting(0, 1_000_000)] = 0
    total_in_flight: Annotated[int, _whole_setting(0, 2**40)] = 0
    total_rate: Annotated[float, _RATE_SETTING] = 0.0
    total_burst: Annotated[int, _whole_setting(0, 1_000_000)] = 0
    parents: Annotated[int, _whole_setting(0, 1)] = 0
    journal: Annotated[int, _whole_setting(0, 10_000_000)] = 0
    result_ttl: Annotated[float | None, _or_none(_seconds_setting(1, 30 * 86_400))] = None
    max_result_size: Annotated[int, _whole_setting(0, 16 * 2**20)] = 64 * 1024
    max_result_bytes: Annotated[int, _whole_setting(0, 2**40)] = 64 * 2**20
    max_schedules: Annotated[int, _whole_setting(0, 100_000)] = 0
    ttl: Annotated[float | None, _or_none(_seconds_setting(1, 10 * 365 * 86_400))] = None
    legacy_stream: Annotated[str | None, _or_none(_NAME_SETTING)] = None
    legacy_group: Annotated[str | None, _or_none(_GROUP_SETTING)] = None
    partitions: Annotated[int, _PARTITIONS_SETTING] = 1

    def __post_init__(self) -> None:
        """ConfigError for a bad setting, before anything is sent."""
        for name, setting in _SETTINGS.items():
            setting.check(name, getattr(self, name))
        if (self.legacy_stream is None) != (self.legacy_group is None):
            raise ConfigError("legacy_stream and legacy_group go together: name the stream and its consumer group")

    def settings(self) -> list[str | int]:
        """Return names and values as Redis stores them: times in ms, without settings that are None.

        With a map of partitions they are those of the head: its part of what is shared, and what the whole has.

        For the parts of shardq that store it.
        """
        flat: list[str | int] = []
        count = read_of(self.partitions)
        parts = shares(self, 0, count) if count > 1 else {}
        for name, setting in _SETTINGS.items():
            value = getattr(self, name)
            if name != "streams" and value is not None and not (name == "partitions" and not is_parted(value)):
                flat += [name, setting.stored(parts.get(name, value))]
        if parts:
            flat += [
                WHOLE_FIELD,
                whole_text({name: _SETTINGS[name].stored(getattr(self, name)) for name in SHARED_SETTINGS}),
            ]
        has_accounts = self.window or self.max_in_flight or self.max_backlog or self.rate
        return [*flat, "accounts", 1] if has_accounts else flat

    @classmethod
    def from_settings(cls, meta: Mapping[str, str], streams: int) -> QueueConfig:
        """Make the settings from what `settings` wrote. Missing fields get their defaults.

        For the parts of shardq that load it.
        """
        mapping("meta", meta, "the fields of a queue to str")
        try:
            meta = {**meta, **whole_of(meta[WHOLE_FIELD])} if WHOLE_FIELD in meta else meta
            values = {name: setting.parsed(meta[name]) for name, setting in _SETTINGS.items() if name in meta}
        except (TypeError, ValueError, OverflowError):
            raise ConfigError("the fields of a queue must be what settings() made of them") from None
        return cls(**{**values, "streams": streams})


_SETTINGS: Final[Mapping[str, Setting]] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(QueueConfig, include_extras=True).items()
}


def kinds() -> dict[str, str]:
    """Return in Lua what Redis may keep of each setting but the number of streams, and of what stands beside them."""
    found = {name: setting.kind for name, setting in _SETTINGS.items() if name != "streams"}
    return {**found, WHOLE_FIELD: WHOLE_KIND}


def differs(name: str, one: Any, other: Any) -> bool:
    """Return whether Redis keeps two values of a setting differently: 1.0004 s and 1.0 s are both 1000 ms."""
    if one is None or other is None:
        return one is not other
    if name == "partitions":  # where they are is not what anybody asks for
        return int(one) != int(other)
    return _SETTINGS[name].stored(one) != _SETTINGS[name].stored(other)


def told_setting(name: str, text: str) -> Any:
    """Return the value of a setting that an event of the journal tells. ConfigError if it is none."""
    try:
        return _SETTINGS[name].parsed(text)
    except (KeyError, ValueError, OverflowError):
        raise ConfigError(f"no setting {shown(name)} has the value {shown(text)}") from None


_DEFAULTS: Final = QueueConfig()


def queue_config(settings: Mapping[str, Any]) -> QueueConfig:
    """Return the settings of a queue. ConfigError for an unknown or a bad one."""
    check_known("queue", mapping("settings", settings, "a setting's name to its value"), _SETTINGS)
    return QueueConfig(**settings) if settings else _DEFAULTS
