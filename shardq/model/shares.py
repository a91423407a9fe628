"""Shares: each partition's part of the bounds and rates that users give to the queue as a whole.

The parts of a bound add up to it, so the queue never goes beyond it, however its load is spread. The head keeps what
the user gave beside its own part, as one text: so that is what everybody reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from shardq.errors import ConfigError

if TYPE_CHECKING:
    from shardq.model.settings import QueueConfig

SHARED_SETTINGS: Final = (
    "max_len", "max_dead", "max_dedup", "total_in_flight", "total_rate", "total_burst", "journal", "max_result_bytes",
    "max_schedules",
)  # fmt: skip
"""Settings of the queue as a whole; each partition has its part of them."""

WHOLE_FIELD: Final = "whole"
"""The field of the head with what the whole queue has of these; others have none."""
WHOLE_KIND: Final = "{'^[%w_. ]+$', 512}"
"""The pattern and the greatest length of that field, as Lua checks it."""

_MILLIONTHS: Final = 1_000_000


def share(total: int, number: int, count: int) -> int:
    """Return the part of partition *number* of *count* partitions: all parts add up to the total.

    >>> [share(100, number, 3) for number in range(3)]
    [34, 33, 33]
    """
    each, rest = divmod(total, count)
    return each + (number < rest)


def shares(config: QueueConfig, number: int, count: int) -> dict[str, Any]:
    """Return the parts of partition *number*. The burst of a rate is shared out as well: none may be rounded up."""
    found = {name: share(getattr(config, name), number, count) for name in SHARED_SETTINGS if name != "total_rate"}
    rate = share(round(config.total_rate * _MILLIONTHS), number, count) / _MILLIONTHS
    return {**found, "total_rate": rate, "total_burst": share(_burst(config), number, count)}


def shared(config: QueueConfig, number: int, count: int) -> QueueConfig:
    """Return the settings of partition *number* of *count*, for a queue with the settings *config*.

    *count* is how many are read: one that is not written to any more still delivers, and keeps its messages. A legacy
    stream is the head's alone.
    """
    mine = {"legacy_stream": None, "legacy_group": None} if number else {}
    return replace(config, partitions=1, **mine, **shares(config, number, count))


def check_shares(config: QueueConfig, count: int) -> None:
    """ConfigError for a bound too small for a part in each of *count* partitions."""
    for name in SHARED_SETTINGS:
        total = _burst(config) if name == "total_burst" else getattr(config, name)
        if 0 < total < (count / 1000 if name == "total_rate" else count):
            by = f" (total_rate makes it {total:,})" if name == "total_burst" and not config.total_burst else ""
            raise ConfigError(
                f"{name} is not for a queue with partitions if it is less than their number, {count}{by}: each has its "
                f"part of it. Give {name}={count} or more, or have fewer partitions"
            )


def _burst(config: QueueConfig) -> int:
    """Return how many may be delivered at once, as Redis reckons it."""
    return config.total_burst or ceil(config.total_rate)


def whole_text(stored: Mapping[str, str | int]) -> str:
    """Return the text of the whole queue's values: those of settings as they are *stored*.

    >>> whole_text({"max_len": 100, "total_rate": 2.5}), whole_of("max_len 100 total_rate 2.5")
    ('max_len 100 total_rate 2.5', {'max_len': '100', 'total_rate': '2.5'})
    """
    return " ".join(f"{name} {value}" for name, value in stored.items())


def whole_of(text: str) -> dict[str, str]:
    """Return what a text says. ValueError for one that nobody wrote so."""
    words = text.split(" ")
    found = dict(zip(words[::2], words[1::2], strict=True))
    if found.keys() - {*SHARED_SETTINGS}:
        raise ValueError(text[:100])
    return found
