"""Which tenants of a queue have labels of their own, and what is shown of them.

A label's value is a series that somebody stores, so there are few: at most `most` names within any 15 minutes, and
`other` for all the rest. First those that a limit or a pause holds back (up to half of the places), then the largest.
Where there are more, a fifth of the places is kept for those that have a twentieth of the backlog: so one that begins
to flood has a label within a minute, however many others had the places before it.

To find them costs a look at all accounts: a hundred short calls for 100,000 tenants. A thread does it each minute, or
after 50 times as long as it took. In between one call tells what those with labels have.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from shardq.clock import Clock
from shardq.errors import ClosedError, ConfigError, ShardqError
from shardq.exporter.answers import HttpAnswer
from shardq.exporter.errors import is_away
from shardq.model.stats import QueueStats
from shardq.model.tenant import Tenant
from shardq.model.worker_status import PICKUP_BOUNDS, WorkerStatus
from shardq.ops.inspect.tenants import leaders, named
from shardq.ops.operate.controls import own_controls
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.partitions import surveys
from shardq.protocol.beats import percentile
from shardq.sharding import key_bytes
from shardq.telemetry.options import hashed

MAX_TENANTS: Final = 50
"""Tenants of a queue that can have labels of their own."""
LABEL_SECONDS: Final = 900.0
"""Seconds for which a tenant keeps its label after it was chosen last."""
SURVEY_INTERVAL: Final = 60.0
"""Seconds between two surveys, at least."""
REST_FACTOR: Final = 50
"""After a survey that took a second, the next one begins after this many seconds, at least."""
FRESH_SECONDS: Final = 5.0
"""Seconds for which the numbers of those that have labels count as those of now."""
FIRST_SURVEY_SECONDS: Final = 1.0
"""Seconds that a page waits for the first survey, so that it has the names."""
LARGE_SHARE: Final = 0.05
"""The share of the backlog with which a tenant may have a place that is kept."""
OTHER: Final = "other"
PICKUPS: Final = 0.99

T = TypeVar("T")
log = logging.getLogger("shardq.exporter")


class SurveyRequest(Protocol):
    """How a queue is asked."""

    def __call__(self, op: Op[T], what: str, /) -> T:
        """Return what *op* finds. BackendError also if that makes no sense. *what* is its name in a log."""


class Over(Protocol):
    """How an operation goes over the partitions of a queue."""

    def __call__(self, op: Callable[[QueueState], Op[T]], together: Callable[[Sequence[T]], T], /) -> Op[T]:
        """Return what they say, together."""


class TenantRow(NamedTuple):
    """One label value: its name, the numbers that wait and are in flight, and the p99 of pick-ups (None: unknown)."""

    name: str
    backlog: int
    in_flight: int
    pickup_p99: float | None


class LabelPlaces:
    """The names that have labels: at most *most* at a time, each for `LABEL_SECONDS` after it was chosen last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._last: dict[bytes, float] = {}

    @property
    def names(self) -> list[bytes]:
        """Those that have one."""
        return sorted(self._last)

    def choose(self, wanted: Sequence[bytes], large: Collection[bytes], now: float) -> None:
        """Give places to those *wanted*, the first ones first. If they are too many, some are kept for *large* ones."""
        last = {name: at for name, at in self._last.items() if now - at < LABEL_SECONDS}
        some = self._most - self._most // 5 if len(wanted) > self._most else self._most
        for name in sorted(wanted, key=lambda name: name not in last):  # those that have one keep it
            if name in last or len(last) < (self._most if name in large else some):
                last[name] = now
        self._last = last


class Tenants:
    """The tenants of one queue: *ask* asks for them, and *patience* is how long a page waits for Redis.

    *over* lets an operation go over all partitions. *is_hashed* hides their names.
    """

    def __init__(
        self, ask: SurveyRequest, over: Over, most: int, patience: float, clock: Clock, *, is_hashed: bool = False
    ) -> None:
        self._ask, self._over, self._most, self._patience, self._clock = ask, over, most, patience, clock
        self._is_hashed, self._has_failed = is_hashed, False
        self._lock = threading.Lock()
        self._places = LabelPlaces(most)
        self._numbers: HttpAnswer[list[Tenant]] = HttpAnswer(self._look_closely, FRESH_SECONDS, clock)
        self._survey: threading.Thread | None = None
        self._next = -1.0
        self._knows: bool | None = None  # whether the queue knows its tenants; None until a survey has ended

    def rows(self, stats: QueueStats, workers: Sequence[WorkerStatus]) -> list[TenantRow]:
        """Return a row for each that has a label, and one for all others; [] while these are not known."""
        self._look(stats)
        if self._knows is None and (survey := self._survey) is not None:
            survey.join(FIRST_SURVEY_SECONDS)
        if not self._knows:
            return []
        try:
            found = self._numbers.get() if self._places.names else []
        except ShardqError:
            return []
        shown = {self._shown(each.shard_key): each for each in found}
        rows = [
            TenantRow(name, each.backlog, each.in_flight, _pickup(workers, {key_bytes(each.shard_key)}))
            for name, each in shown.items()
        ]
        own = {key_bytes(each.shard_key) for each in shown.values()}
        backlog = max(0, stats.backlog - sum(each.backlog for each in rows))
        in_flight = max(0, stats.in_flight - sum(each.in_flight for each in rows))
        return [*rows, TenantRow(OTHER, backlog, in_flight, _pickup_beside(workers, own))]

    def wait(self) -> None:
        """Wait until the survey is done that is under way."""
        if self._survey is not None:
            self._survey.join()

    def _shown(self, key: str | bytes) -> str:
        return hashed(key) if self._is_hashed else key if isinstance(key, str) else key.hex()

    def _look_closely(self) -> list[Tenant]:
        return self._named(self._places.names, self._patience)

    def _named(self, names: Sequence[bytes], patience: float | None = None) -> list[Tenant]:
        return self._ask(self._over(lambda state: named(state, names, patience), surveys.named), "named")

    def _look(self, stats: QueueStats) -> None:
        """Begin a survey in a thread, if it is time for one."""
        with self._lock:
            if self._survey is not None or self._clock.monotonic() < self._next:
                return
            self._survey = threading.Thread(target=self._find, args=(stats,), name="shardq-survey", daemon=True)
            self._survey.start()

    def _find(self, stats: QueueStats) -> None:
        began = self._clock.monotonic()
        try:
            self._choose(stats)
            self._knows, self._has_failed = True, False
        except ConfigError as error:
            if self._knows is not False:
                log.warning("tenants cannot be shown: %s", error)
            self._knows = False
        except ClosedError:
            pass  # the program has ended meanwhile
        except ShardqError as error:
            if not self._has_failed and not is_away(error):  # that, the poller says
                log.warning("tenants of queue %r cannot be looked at: %s", stats.queue, error)
            self._has_failed = True
        finally:
            ended = self._clock.monotonic()
            with self._lock:
                self._next = ended + max(SURVEY_INTERVAL, REST_FACTOR * (ended - began))
                self._survey = None

    def _choose(self, stats: QueueStats) -> None:
        controls = self._ask(self._over(own_controls, surveys.controls), "controls")
        held = {key_bytes(key) for key in (*controls.paused, *controls.limits) if key is not None}
        lead = self._over(lambda state: leaders(state, self._most + 1, held), surveys.leaders)
        largest, of_held = self._ask(lead, "leaders")
        names = [*dict.fromkeys([*of_held[: self._most // 2], *largest])]
        found = [each for each in self._named(names) if self._has_label(each)]
        # Each of several partitions has reported its own largest.
        first = set(of_held[: self._most // 2])
        found.sort(key=lambda each: (key_bytes(each.shard_key) not in first, -each.backlog))
        large = {key_bytes(each.shard_key) for each in found if each.backlog >= LARGE_SHARE * max(1, stats.backlog)}
        self._places.choose([key_bytes(each.shard_key) for each in found], large, self._clock.monotonic())
        self._numbers = HttpAnswer(self._look_closely, FRESH_SECONDS, self._clock)  # of others from now on

    def _has_label(self, tenant: Tenant) -> bool:
        return bool(tenant.backlog or tenant.in_flight) and self._shown(tenant.shard_key) != OTHER


def _pickup(workers: Sequence[WorkerStatus], names: Collection[bytes]) -> float | None:
    """Return how long 99 of 100 messages of these tenants waited in the last minute; None if nobody tells."""
    told = (each for worker in workers for each in worker.tenants if key_bytes(each.shard_key) in names)
    return max((each.pickup_p99 for each in told if each.pickup_p99 is not None), default=None)


def _pickup_beside(workers: Sequence[WorkerStatus], names: Collection[bytes]) -> float | None:
    """Return the same for all other tenants: the slowest of those that workers report by name."""
    counts = [0] * len(PICKUP_BOUNDS)
    for worker in workers:
        for at, count in enumerate(worker.other_tenants[: len(counts)]):
            counts[at] += count
    told = (each for worker in workers for each in worker.tenants if key_bytes(each.shard_key) not in names)
    found = [each.pickup_p99 for each in told] + [percentile(counts, PICKUPS)]
    return max((each for each in found if each is not None), default=None)
