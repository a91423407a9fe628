"""The work of one worker, also while others have just started: these have slots, and have done nothing yet."""

from __future__ import annotations

from shardq.clock import Clock
from shardq.exporter.policy import Numbers
from shardq.model.outlook import Outlook
from shardq.model.worker_status import WorkerStatus

MIN_LIFE = 20.0
"""Seconds that a worker has to have lived before it says what one does."""
JOBS_OF_LIFE = 3.0
"""How many times as long as a job takes it has to have lived."""
MAX_LIFE = 1800.0
"""Seconds after which it does so, however long a job takes."""
REMEMBERED_SECONDS = 1800.0
"""Seconds for which it is remembered what one worker did, while some have just started."""


class WorkerRates:
    """Remembers of one queue what a worker did, and how many jobs it could run at once.

    If what all did were divided by all, each start of a worker would lower what one does, and so start more of them. So
    as long as some are young, the earlier figure counts; and if there is none, all work counts as done by those that
    are not young.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rate: float | None = None
        self._rate_at = 0.0
        self._slots: float | None = None

    def told(
        self, numbers: Numbers, outlook: Outlook | None, workers: tuple[WorkerStatus, ...], slots: float | None = None
    ) -> Numbers:
        """Return *numbers* with what one worker does; *slots* is how many each had of those that were heard last."""
        self._slots = numbers.slots_each or self._slots or slots
        numbers = numbers._replace(slots_each=self._slots)
        if outlook is None or not numbers.workers:
            return numbers._replace(per_worker=self._rate)
        old = _old_share(outlook, workers)
        now = self._clock.monotonic()
        if numbers.per_worker and old == 1:
            self._rate, self._rate_at = numbers.per_worker, now
        elif old < 1 and self._rate and now - self._rate_at < REMEMBERED_SECONDS:
            return numbers._replace(per_worker=max(self._rate, numbers.per_worker or 0.0))
        elif old < 1:
            # If all are young, nobody knows.
            return numbers._replace(per_worker=numbers.per_worker / old if numbers.per_worker and old else None)
        return numbers


def _old_share(outlook: Outlook, workers: tuple[WorkerStatus, ...]) -> float:
    """Return the share of the workers that have lived for long enough."""
    if not workers:
        return 1.0
    # As many run at once as come in the time that one takes (Little's law).
    job = outlook.busy / outlook.rate if outlook.rate else MAX_LIFE
    life = min(MAX_LIFE, max(MIN_LIFE, JOBS_OF_LIFE * job))
    return sum(outlook.time - each.started >= life for each in workers) / len(workers)
