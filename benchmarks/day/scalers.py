"""What autoscalers go by: shardq's own numbers, `len()`, XLEN of the queue's streams, CPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import redis

from benchmarks.day.autoscaler import by_average, by_usage
from benchmarks.day.pods import Deployment, Pod
from shardq import Queue
from shardq.exporter import policy
from shardq.exporter.poller import Poller

LEAD: Final = 60.0
"""Seconds before messages are due in which the first pod is started."""
JOB_CPU: Final = 0.04
"""The part of a core that a job takes while it runs: it waits for others' answers most of the time."""
IDLE_CPU: Final = 0.01
"""What a process takes that does nothing."""
REQUEST: Final = 0.25
"""Cores that a pod requests. CPU is told as a part of it."""


@dataclass(frozen=True)
class World:
    """What a scaler may look at."""

    queue: Queue
    server: redis.Redis
    poller: Poller
    pods: Deployment


@dataclass
class Scaler:
    """One way to scale: by so much of something for each worker."""

    target: float
    name: str = ""
    least: int = 0
    """Replicas that are always there: without a metric of the queue nobody knows when the first one is needed."""
    is_pushed: bool = False
    """Whether KEDA is told at once that somebody is needed (`external-push`), and need not ask."""
    needs_beats: bool = False
    """Whether it asks what workers tell of themselves. In the others' days they tell nothing: nobody would ask."""

    def is_active(self, world: World, now: float) -> bool:
        """Whether anybody is needed. BackendError while Redis is away."""
        raise NotImplementedError

    def wanted(self, world: World, replicas: int, now: float) -> int | None:
        """How many replicas it takes. BackendError while Redis is away."""
        raise NotImplementedError


@dataclass
class Own(Scaler):
    """The scaler of shardq, by one of its metrics."""

    is_pushed: bool = True
    metric: policy.Metric = "load"

    def is_active(self, world: World, now: float) -> bool:
        return self._policy().is_active(self._numbers(world))

    def wanted(self, world: World, replicas: int, now: float) -> int | None:
        return by_average(self._policy().value(self._numbers(world)), self.target, replicas)

    def _policy(self) -> policy.Policy:
        return policy.Policy(self.metric, self.target, LEAD)

    def _numbers(self, world: World) -> policy.Numbers:
        name = world.queue.name
        if self.needs_beats:
            return world.poller.numbers(name)
        return policy.numbers_of(world.poller.stats(name), None)


def own(metric: policy.Metric, target: float) -> Own:
    """Return shardq's scaler by a metric. By load it needs no more than `stats`."""
    return Own(target, f"shardq, {metric}", metric=metric, needs_beats=metric != "load")


@dataclass
class Length(Scaler):
    """`len()`: the backlog and what is in flight. A plain stream has as many entries, if what is done is deleted."""

    name: str = "len()"

    def metric(self, world: World) -> float:
        return world.queue.len()

    def is_active(self, world: World, now: float) -> bool:
        return self.metric(world) > 0

    def wanted(self, world: World, replicas: int, now: float) -> int | None:
        return by_average(self.metric(world), self.target, replicas)


@dataclass
class StreamLength(Length):
    """XLEN of each of the queue's streams, added up. KEDA has a trigger for each, and takes the one that wants most."""

    name: str = "XLEN"

    def metric(self, world: World) -> float:
        world.queue.len()  # it fails where Redis is away; XLEN here goes past the driver
        state = world.queue.state
        with world.server.pipeline(transaction=False) as pipe:
            for number in range(state.streams):
                pipe.xlen(state.keys.stream(number))
            return float(sum(pipe.execute()))


@dataclass
class Cpu(Scaler):
    """The horizontal autoscaler on CPU, of which Kubernetes tells what pods took between two looks before."""

    name: str = "CPU"
    least: int = 1
    _before: dict[Pod, float] = field(default_factory=dict)
    _usages: list[float] = field(default_factory=list)
    _at: float = 0.0

    def is_active(self, world: World, now: float) -> bool:
        return True

    def wanted(self, world: World, replicas: int, now: float) -> int | None:
        told, passed = self._usages, max(1e-9, now - self._at)
        ready = world.pods.ready(now)
        for pod in ready:
            pod.count(now)
        self._usages = [
            (IDLE_CPU + JOB_CPU * (pod.busy - self._before[pod]) / passed) / REQUEST
            for pod in ready
            if pod in self._before
        ]
        self._before, self._at = {pod: pod.busy for pod in ready}, now
        return by_usage(told, len(world.pods.staying()) - len(ready), self.target, replicas)
