"""The pods of a Deployment by a made-up clock: they start late, end gracefully, and are replaced by a deploy."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from benchmarks.day.telling import Telling
from shardq import Delivery
from shardq.worker.state import WorkerJob

SLOTS: Final = 4
"""Jobs that a worker runs at once."""
START: Final = (30.0, 60.0)
"""Seconds until a new pod is ready: its place is found, its image pulled, its process started."""
GRACE: Final = 120.0
"""Seconds that a pod has to end its jobs, when it is told to end."""
SHARE: Final = 0.25
"""The part of the pods that a deploy may have too many, or too few."""


@dataclass
class Running:
    """A job that runs."""

    delivery: Delivery
    ends: float
    number: int
    told: WorkerJob | None = None


@dataclass(eq=False)
class Pod:
    """One worker, and when it was made."""

    number: int
    version: int
    made: float
    ready_at: float
    told_to_end: float | None = None
    jobs: dict[int, Running] = field(default_factory=dict)
    telling: Telling | None = None
    busy: float = 0.0
    """Seconds of its slots that jobs took."""
    counted_at: float = 0.0

    def is_ready(self, now: float) -> bool:
        """Whether it runs jobs."""
        return now >= self.ready_at

    def free(self, now: float) -> int:
        """Return how many more jobs it takes."""
        return 0 if self.told_to_end is not None or not self.is_ready(now) else SLOTS - len(self.jobs)

    def count(self, now: float) -> None:
        """Count what its jobs took until now. Call it before their number changes."""
        self.busy += len(self.jobs) * (now - self.counted_at)
        self.counted_at = now


class Deployment:
    """The pods.

    *later* calls something at a time; *is_ready* is told of a pod that may work, *given_back* takes the jobs of one
    that ends before they do.
    """

    def __init__(
        self,
        later: Callable[[float, Callable[[], None]], None],
        is_ready: Callable[[Pod], None],
        given_back: Callable[[Pod], None],
        seed: int,
    ) -> None:
        self._later, self._is_ready, self._given_back, self._seed = later, is_ready, given_back, seed
        self.pods: list[Pod] = []
        self.replicas = 0
        self.seconds = 0.0
        """Seconds of pods that are gone."""
        self._made, self._version = 0, 0

    def scale(self, replicas: int, now: float) -> None:
        """Want so many pods."""
        self.replicas = replicas
        self.reconcile(now)

    def deploy(self, now: float) -> None:
        """Replace all pods by those of a new version."""
        self._version += 1
        self.reconcile(now)

    def lived(self, now: float) -> float:
        """Return the seconds of all pods until now."""
        return self.seconds + sum(now - each.made for each in self.pods)

    def staying(self) -> list[Pod]:
        """Return the pods that were not told to end."""
        return [each for each in self.pods if each.told_to_end is None]

    def ready(self, now: float) -> list[Pod]:
        """Return those that run jobs, and go on."""
        return [each for each in self.staying() if each.is_ready(now)]

    def reconcile(self, now: float) -> None:
        """Make pods and tell pods to end, as far as that is allowed now."""
        staying = self.staying()
        new = [each for each in staying if each.version == self._version]
        old = [each for each in staying if each.version != self._version]
        surge = math.ceil(SHARE * self.replicas) if old else 0
        missing = min(self.replicas - len(new), self.replicas + surge - len(staying))
        new += [self._make(now) for _ in range(missing)]
        for each in _victims(new, now)[: max(0, len(new) - self.replicas)]:
            self._end(each, now)
        self._end_old(old, now)

    def _end_old(self, old: list[Pod], now: float) -> None:
        """End pods of the version before: those beyond what is wanted, and as many as may lack."""
        least = self.replicas - math.floor(SHARE * self.replicas)
        for each in _victims(old, now):
            spare = len(self.staying()) > self.replicas + math.ceil(SHARE * self.replicas)
            if spare or not each.is_ready(now) or len(self.ready(now)) > least:
                self._end(each, now)

    def _make(self, now: float) -> Pod:
        # By its number: so pods of each scaler start as slowly.
        takes = random.Random(f"pod {self._seed} {self._made}").uniform(*START)
        pod = Pod(self._made, self._version, now, now + takes, counted_at=now)
        self._made += 1
        self.pods.append(pod)
        self._later(pod.ready_at, lambda: self._ready(pod))
        return pod

    def _ready(self, pod: Pod) -> None:
        if pod.told_to_end is None:
            self._is_ready(pod)
            self.reconcile(pod.ready_at)

    def _end(self, pod: Pod, now: float) -> None:
        pod.told_to_end = now
        if not pod.jobs:
            self.gone(pod, now)
        else:
            self._later(now + GRACE, lambda: self._cut(pod, now + GRACE))

    def _cut(self, pod: Pod, now: float) -> None:
        if pod in self.pods:
            self._given_back(pod)
            self.gone(pod, now)

    def gone(self, pod: Pod, now: float) -> None:
        """Take a pod away that has ended."""
        self.pods.remove(pod)
        if pod.telling:
            pod.telling.stop()
        self.seconds += now - pod.made


def _victims(pods: list[Pod], now: float) -> list[Pod]:
    """Return pods in the order in which Kubernetes ends them: those that start, then the youngest."""
    return sorted(pods, key=lambda each: (each.is_ready(now), -each.made, -each.number))


class Later:
    """What is to be done, in the order of time."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def __call__(self, at: float, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._heap, (at, self._number, action))

    def next(self) -> tuple[float, Callable[[], None]] | None:
        """Take what is next; None if nothing is to be done."""
        if not self._heap:
            return None
        at, _, action = heapq.heappop(self._heap)
        return at, action
