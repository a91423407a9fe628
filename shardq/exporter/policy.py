"""The measures for an autoscaler: load, age or drain time, and whether anybody is needed at all.

KEDA and the horizontal autoscaler of Kubernetes start ceil(value / target) workers, and none where nothing is active.
docs/autoscaling.md has the arithmetic with an example each.
"""

from __future__ import annotations

import math
from typing import Final, Literal, NamedTuple

from shardq.model.outlook import Outlook
from shardq.model.stats import QueueStats

Metric = Literal["load", "age", "drain"]
METRICS: Final[tuple[Metric, ...]] = ("load", "age", "drain")

LEAD: Final = 30.0
"""Seconds before a delayed message is due in which a worker is started for it."""
MAX_WORKERS: Final = 1_000_000
"""More workers than anybody could start: results from numbers that make no sense end here."""
MAX_GROWTH: Final = 2.0
"""Times as many workers as there are: the most to ask for before it is known what more of them would do."""


class Numbers(NamedTuple):
    """The known numbers of a queue at one moment, as `GET /queues/NAME` shows them."""

    runnable: int
    in_flight: int
    due_soon: int
    next_due: float | None
    """Seconds from now until the first message can be delivered that cannot be now, since it is delayed or the whole
    queue is paused; None: there is none, or no end."""
    oldest_age: float | None
    """Seconds that the oldest runnable message has waited; None: none waits."""
    drain_time: float | None
    """Seconds until the queue is drained; None: not known, or never."""
    workers: int | None
    """Workers that read the queue; None: not known now. So it is of `slots`, the jobs that they may run at once."""
    slots: int | None
    per_worker: float | None = None
    """Messages that one worker could do in a second, as measured; None: not known."""
    written_rate: float | None = None
    """Messages written in a second, of late; None: not known."""
    done_rate: float | None = None
    """Messages done in a second, of late; None: not known."""
    slots_each: float | None = None
    """Jobs that one worker may run at once: if none works now, the last number; None: not known."""

    @property
    def load(self) -> int:
        """The messages that keep workers busy: runnable and in flight.

        Messages that a limit, a pause or a delay holds back are not in it.
        """
        return self.runnable + self.in_flight


def numbers_of(stats: QueueStats, outlook: Outlook | None) -> Numbers:
    """Return the numbers of a queue from its stats, and from the outlook of about the same moment if it is known."""
    workers = outlook.workers if outlook else None
    return Numbers(
        runnable=stats.runnable,
        in_flight=stats.in_flight,
        due_soon=stats.due_soon,
        next_due=_next_due(stats),
        oldest_age=stats.oldest_age,
        drain_time=outlook.drain_seconds if outlook else None,
        workers=workers,
        slots=outlook.slots if outlook else None,
        per_worker=outlook.capacity / workers if outlook and workers and outlook.capacity else None,
        written_rate=outlook.written_rate if outlook else None,
        done_rate=outlook.rate if outlook else None,
        slots_each=outlook.slots / workers if outlook and workers and outlook.slots else None,
    )


def _next_due(stats: QueueStats) -> float | None:
    """Return in how many seconds the next message can be delivered that cannot be now."""
    at = stats.next_due
    if stats.paused_until is not None:
        # Nothing is delivered before the pause ends. Then all that waits is.
        at = stats.paused_until if stats.backlog or at is None or at < stats.paused_until else at
        if math.isinf(at) or not (stats.backlog or stats.delayed):
            return None
    return None if at is None else max(0.0, at - stats.time)


class Policy(NamedTuple):
    """By what a queue's workers are scaled: `ceil(value / target)` workers are wanted, and none if it is not active.

    - **load**: the target is how many messages a worker is to have, runnable or in flight.
    - **age**: the target is how many seconds the oldest message may wait.
    - **drain**: the target is in how many seconds everything that is runnable is to be delivered. Writes count as far
      as something to do comes of them: more is runnable, or is done.

    A delayed message that is due within `lead` seconds starts one worker, so that it is there in time. The first worker
    starts if more than `activation` messages are runnable; by age, if one has waited for more than `activation`
    seconds. As long as anything is in flight, none of this takes the last worker away.

    >>> now = Numbers(runnable=95, in_flight=5, due_soon=0, next_due=None, oldest_age=12.0, drain_time=95.0,
    ...               workers=1, slots=5, per_worker=1.0)
    >>> Policy("load", 10).wanted(now), Policy("age", 6).wanted(now), Policy("drain", 30).wanted(now)
    (10, 2, 4)
    """

    metric: Metric
    target: float
    lead: float = LEAD
    activation: float = 0.0

    def is_active(self, numbers: Numbers) -> bool:
        """Say whether at least one worker is needed."""
        if numbers.in_flight > 0:
            return True
        is_soon = numbers.next_due is not None and numbers.next_due <= self.lead
        if self.metric == "age" and self.activation:
            # A message that waits for the end of a pause has an age, too, and there is nothing to do.
            return numbers.runnable > 0 and (numbers.oldest_age or 0.0) > self.activation
        return numbers.runnable + (max(1, numbers.due_soon) if is_soon else 0) > self.activation

    def value(self, numbers: Numbers) -> float:
        """Return the metric: above 0 exactly if the queue is active, to the thousandth, as Kubernetes reckons."""
        if not self.is_active(numbers):
            return 0.0
        if self.metric == "load":
            return float(numbers.load) if numbers.load else min(1.0, self.target)
        # Where only something due soon makes it active, one worker is enough until it is due.
        workers = self._workers(numbers) if numbers.load else 1.0
        return max(0.001, round(min(workers, MAX_WORKERS) * self.target, 3))

    def is_known(self, numbers: Numbers) -> bool:
        """Say whether the value can be given: age and drain time need the workers."""
        return self.metric == "load" or numbers.workers is not None or not numbers.load

    def wanted(self, numbers: Numbers, *, least: int = 0, most: int = MAX_WORKERS) -> int:
        """Return how many workers there should be, from *least* to *most*."""
        # In thousandths, since 3 * 0.1 / 0.1 is more than 3.
        found = -(-round(self.value(numbers) * 1000) // max(1, round(self.target * 1000)))
        return min(max(found, least), most)

    def _workers(self, numbers: Numbers) -> float:
        """Return how many workers are wanted: as many as are busy at least, and as many as have something to do."""
        each = numbers.slots / numbers.workers if numbers.workers and numbers.slots else numbers.slots_each
        slots = max(1.0, each or 1.0)
        busy, useful = numbers.in_flight / slots, numbers.load / slots
        if not numbers.workers and not numbers.per_worker:
            return max(1.0, busy)  # nobody knows what a worker does before one works
        if self.metric == "age":
            return max(busy, min(self._by_age(numbers), useful))
        if not numbers.per_worker:
            return max(busy, min(MAX_GROWTH * (numbers.workers or 1), useful))
        for_new = (numbers.written_rate or 0.0) / numbers.per_worker
        for_old = numbers.runnable / numbers.per_worker / self.target
        # Short jobs come and go between two looks: those that come need workers all the time. Acks show that they were
        # delivered; some of the written messages may wait for a limit, a pause or their time.
        come_and_go = min(for_new, (numbers.done_rate or 0.0) / numbers.per_worker)
        return max(busy, min(for_new + for_old, max(useful, come_and_go)))

    def _by_age(self, numbers: Numbers) -> float:
        """Return as many times the workers as the age is the target, and not more than twice as many as there are."""
        return max(1, numbers.workers or 1) * min(MAX_GROWTH, (numbers.oldest_age or 0.0) / self.target)
