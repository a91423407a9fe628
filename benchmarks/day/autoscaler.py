"""The horizontal pod autoscaler of Kubernetes, and KEDA before it: how many replicas they make of a metric.

With the defaults of both: it looks each 15 s, ignores a tenth more or less, adds at most as many pods as there are (or
four) each time, takes none away that it wanted in the last five minutes, and takes the last one five minutes after
anything was active. Where the metric cannot be had, the replicas stay.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final

SYNC: Final = 15.0
"""Seconds between two looks."""
TOLERANCE: Final = 0.1
STABLE: Final = 300.0
"""Seconds for which the most that was wanted counts, before pods are taken away."""
COOLDOWN: Final = 300.0
"""Seconds after which the last pod is taken away when nothing is active."""
STEP: Final = 4
"""Pods that may be added at once, where that is more than there are."""


@dataclass
class Autoscaler:
    """What is wanted of a Deployment: `least` to `most` replicas."""

    least: int
    most: int
    replicas: int = 0
    _active_at: float = -math.inf
    _wanted: deque[tuple[float, int]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.replicas = max(self.replicas, self.least)

    def look(self, active: bool | None, now: float) -> None:
        """Do what KEDA does: start the first pod, take the last ones away. *active* is None where that is not known."""
        if active is None:
            return
        if active:
            self._active_at = now
            self.replicas = max(1, self.replicas)
        elif now - self._active_at > COOLDOWN and self.least == 0:
            self.replicas = 0
            self._wanted.clear()

    def sync(self, recommended: int | None, now: float) -> None:
        """Do what the horizontal autoscaler does with a number of replicas. None: the metric cannot be had."""
        if self.replicas == 0 or recommended is None:
            return
        recommended = max(1, self.least, min(recommended, self.most))
        self._wanted.append((now, recommended))
        while self._wanted[0][0] <= now - STABLE:
            self._wanted.popleft()
        if recommended > self.replicas:
            self.replicas = min(recommended, max(self.replicas + STEP, 2 * self.replicas))
        else:
            self.replicas = min(self.replicas, max(wanted for _, wanted in self._wanted))


def by_average(metric: float, target: float, replicas: int) -> int:
    """Return how many replicas a metric wants of which each is to have *target*: KEDA's AverageValue."""
    if replicas and abs(1 - metric / (target * replicas)) <= TOLERANCE:
        return replicas
    return math.ceil(metric / target - 1e-9)


def by_usage(usages: list[float], starting: int, target: float, replicas: int) -> int | None:
    """Return how many replicas the usage of CPU wants. *usages* are those of ready pods, parts of what they request.

    Pods that are *starting* count as idle where more are wanted.
    """
    if not usages:
        return None
    ratio = sum(usages) / len(usages) / target
    count = len(usages)
    if starting and ratio > 1:
        count += starting
        ratio = sum(usages) / count / target
        if ratio < 1:
            return replicas
    if abs(1 - ratio) <= TOLERANCE:
        return replicas
    return math.ceil(ratio * count - 1e-9)
