"""The limit that the flooding tenant gets for a while. Nobody is told of it but Redis."""

import time

from examples.demo.figures import short
from shardq import Limits, Queue

LASTS = 3.0  # seconds
PART = 10  # of what the workers do


class Limit:
    """A rate for *noisy*, set while all work and taken back after a while."""

    def __init__(self, jobs: Queue, noisy: str, workers: int) -> None:
        self._jobs, self._noisy, self._workers = jobs, noisy, workers
        self._rate = 0
        self.begun = self._ended = 0.0

    def begin(self, jobs_per_second: float) -> None:
        """Set it to a part of what the workers can do."""
        self._rate = max(1, round(jobs_per_second / PART))
        self._jobs.set_limits({self._noisy: Limits(rate=self._rate, burst=1)})
        self.begun = time.monotonic()

    def end_in_time(self) -> bool:
        """Take it back once it has lasted long enough; whether it is over."""
        if self.begun and not self._ended and time.monotonic() >= self.begun + LASTS:
            self._ended = time.monotonic()
            self._jobs.set_limits({self._noisy: Limits()})
        return self._ended > 0

    def problem(self, taken: list[float]) -> str | None:
        """What is wrong if more jobs were *taken*, each at its time, than the limit allows."""
        count = sum(self.begun <= at < self._ended for at in taken)
        allowed = self._rate * (self._ended - self.begun) + 1  # the burst
        in_hand = self._workers  # delivered before and recorded meanwhile
        return None if count <= allowed + in_hand else f"{count} jobs of {self._noisy} were delivered within its limit"

    def told(self, taken: list[float]) -> str:
        """What it did to the jobs that were *taken*."""
        lasted = self._ended - self.begun
        before, meanwhile = (
            sum(since <= at < since + lasted for at in taken) / lasted for since in (self.begun - lasted, self.begun)
        )
        got = f"{meanwhile:.0f}, before {before:,.0f}"
        return f"{short(self._noisy)} was held to {self._rate} jobs a second for {LASTS:g} s: {got}"
