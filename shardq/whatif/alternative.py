"""The changes of a replay: other workers, and other settings, weights, limits and plans of the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from shardq.arguments import shown, whole
from shardq.declared.declaration import declared_queue
from shardq.errors import ConfigError
from shardq.files import MIB, read_file, toml
from shardq.model import Limits, Plan
from shardq.worker.plan import MAX_CONCURRENCY

REPLAYED: Final = frozenset({
    "streams", "streams_per_shard", "visibility_timeout", "window", "fair", "parents", "max_in_flight", "rate", "burst",
    "total_in_flight", "total_rate", "total_burst",
})  # fmt: skip
"""The settings on which it depends who is served when. The others bound what may be written, or what is kept."""

MAX_WORKERS: Final = 1_000
"""Workers that are replayed."""

_OF_WORKERS: Final = ("workers", "slots", "read_ahead")


class Alternative(msgspec.Struct, frozen=True):
    """An alternative by its name. All else is as it was.

    `workers`: their number, all the time; `slots`: of each; `read_ahead`: of each (`shardq.Worker`). `settings` are
    those of the queue, `weights` and `limits` of shard keys (a text names a plan), and `plans` by name.
    """

    name: str
    workers: int | None = None
    slots: int | None = None
    read_ahead: int = 0
    settings: Mapping[str, Any] = {}
    weights: Mapping[str, int] = {}
    limits: Mapping[str, Limits | str] = {}
    plans: Mapping[str, Plan] = {}

    def __post_init__(self) -> None:
        """ConfigError for a bad number, and for a setting that a replay does not heed."""
        if self.workers is not None:
            whole("workers", self.workers, 1, MAX_WORKERS)
        if self.slots is not None:
            whole("slots", self.slots, 1, MAX_CONCURRENCY)
        whole("read_ahead", self.read_ahead, 0, MAX_CONCURRENCY)
        if strange := sorted({*self.settings} - REPLAYED):
            raise ConfigError(
                f"a replay does not depend on the setting {shown(strange[0])}: it heeds {', '.join(sorted(REPLAYED))}"
            )


def alternatives(raw: bytes) -> list[Alternative]:
    """Return the alternatives of a file: tables by their names, as `shardq apply` takes queues, and with `workers`.

    ConfigError tells what is wrong with it, and where.
    """
    return [alternative_of(name, table) for name, table in toml(raw, "this").items()]


def read_alternatives(path: str | Path) -> list[Alternative]:
    """Return the alternatives of the file at *path*."""
    try:
        return alternatives(read_file(path, MIB, "the file of alternatives"))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def alternative_of(name: str, found: Any) -> Alternative:
    """Return the alternative that a table says. ConfigError tells what is wrong with it."""
    table = dict(found) if isinstance(found, Mapping) else None
    if table is None:
        raise ConfigError(f"alternative {shown(name)} must be a table, not {shown(found)}")
    of_workers = {each: table.pop(each) for each in _OF_WORKERS if each in table}
    declared = declared_queue(name, table)
    if declared.assigned:
        raise ConfigError(f"alternative {shown(name)}: a replay knows no assignment")
    try:
        return Alternative(
            name,
            **of_workers,
            settings=declared.settings,
            weights=declared.weights or {},
            limits=declared.limits or {},
            plans=declared.plans or {},
        )
    except ConfigError as error:
        raise ConfigError(f"alternative {shown(name)}: {error}") from None


def by_workers(alternative: Alternative, numbers: Sequence[int]) -> list[Alternative]:
    """Return *alternative* once for each of these numbers of workers, with that in its name."""
    more = f", {alternative.name}" if alternative.name else ""
    return [replace(alternative, name=f"{each} workers{more}", workers=each) for each in numbers]
