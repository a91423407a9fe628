"""The plan of one run: what fits into its time, as fast as the workers are on this machine.

The others get less than half of what the workers can do, so that they need not wait for each other. The flood gets the
rest, and always has some seconds of work in the queue.
"""

from dataclasses import dataclass

from examples.demo.input import Input, work

SHARE = 0.45  # of what the workers can do is for the others: half, and room for neighbours who come
SHORTEST, LONGEST = 5.0, 22.0  # seconds in which the others write
FLOOD = 5.0  # seconds of work for all workers


@dataclass(frozen=True)
class Plan:
    """What the flood and the others write."""

    jobs_per_second: float  # of the flood, that the workers can do
    flood: int  # jobs that it always has in the queue
    others: int  # jobs, about
    seconds: float  # in which the others write them
    share: float  # of what the workers can do is theirs


def plan(given: Input, speed: float, jobs_per_second: float) -> Plan:
    """What fits workers who do *speed* work per second."""
    total = sum(map(work, given.others))
    seconds = min(LONGEST, max(SHORTEST, total / (SHARE * speed)))
    part = min(1.0, SHARE * speed * seconds / max(1, total))  # of the files
    share = part * total / (speed * seconds)
    return Plan(jobs_per_second, round(FLOOD * jobs_per_second), int(part * len(given.others)), seconds, share)
