"""How long jobs waited for a worker: this is what the demo is about."""

from collections import defaultdict
from typing import Any

from examples.demo.figures import percentile, seconds

TIMES = 10  # the flood's median must be so many times that of the others
RECENT = 100  # jobs


class Waits:
    """How long each job waited for its first delivery, in seconds, by tenant; *noisy* is the one that floods."""

    def __init__(self, noisy: str) -> None:
        self.noisy = noisy
        self.others: list[float] = []
        self.by_tenant = defaultdict[str, list[float]](list)
        self._seen = set[str]()

    @property
    def flood(self) -> list[float]:
        """Those of the tenant that floods."""
        return self.by_tenant[self.noisy]

    def enter(self, event: dict[str, Any]) -> None:
        """Enter one event of one process."""
        if event["event"] != "took" or event["id"] in self._seen:
            return
        self._seen.add(event["id"])
        self.by_tenant[event["tenant"]].append(event["pickup"])
        if event["tenant"] != self.noisy:
            self.others.append(event["pickup"])

    def now(self) -> str:
        """The medians of the last jobs."""
        others, flood = (seconds(percentile(waits[-RECENT:], 0.5)) for waits in (self.others, self.flood))
        return f"others wait {others}, flood {flood}"

    def problem(self) -> str | None:
        """What is wrong if the flood delayed the others.

        They are compared with the flood, and not with a clock: on a slow machine each job takes longer, and so does
        each wait. But the flood waits for all that is before it, the others only until a worker has finished its job.
        Median is compared with median, and p99 with p99: where the API server itself is slow, the flood is short for a
        while.
        """
        if not self.others:
            return "nobody but the flood had a job"
        flood, median = (percentile(waits, 0.5) for waits in (self.flood, self.others))
        worst, high = (percentile(waits, 0.99) for waits in (self.flood, self.others))
        if median * TIMES <= flood and high <= worst:
            return None
        others = f"{seconds(median)} (p99 {seconds(high)})"
        return f"the others waited {others}, and the flood {seconds(flood)} (p99 {seconds(worst)}): it delayed them"
