"""A day on a real queue by a made-up clock: who writes, pods that start, work and end, and the scaler that looks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from math import inf
from typing import Final, TypeVar

import redis

from benchmarks.day.autoscaler import SYNC, Autoscaler
from benchmarks.day.plan import LIMITED, RATE, Arrival, Plan
from benchmarks.day.pods import SLOTS, Deployment, Later, Pod, Running
from benchmarks.day.scalers import LEAD, Scaler, World
from benchmarks.day.telling import PERIOD, Telling
from shardq import BackendError, BackendTimeout, Delivery, Limits, Message, Queue
from shardq.drivers import Target
from shardq.exporter.poller import Poller
from shardq.ops.queue.steps import Step
from shardq.testing import ManualClock
from shardq.testing.fake import FakeClient
from tests.simulated import ClockedDriver

_T = TypeVar("_T")
MIDNIGHT: Final = 1_764_460_800.0
"""Seconds since 1970 at which the day begins."""
TICK: Final = 1.0
"""Seconds after which free slots read again while something waits that a limit or a pause may let go."""
MOMENT: Final = 0.001
"""Seconds after which what is due is so for the server, too, which counts in ms."""
MOST: Final = 30
"""Replicas."""
POLL: Final = 15.0
"""Seconds between two looks of KEDA."""
LEASE: Final = 3600.0
"""Seconds of a lease: a worker extends its leases, and none dies in this day."""


@dataclass
class Sample:
    """What there was at one moment: what was wanted, and what there was."""

    at: float
    replicas: int
    ready: int
    busy: int


@dataclass
class Found:
    """What a day came to with one scaler. `waits` has of each message when it was picked up, its wait and its kind."""

    scaler: str
    waits: list[tuple[float, float, str]] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    pod_seconds: float = 0.0
    begun_anew: int = 0
    """Jobs that were given back since their pod was told to end."""
    undone: int = 0
    unknown: int = 0
    """Looks of the autoscaler that Redis did not answer."""

    @property
    def hours(self) -> float:
        """Worker-hours."""
        return self.pod_seconds / 3600


class Day:
    """One day with one scaler."""

    def __init__(
        self, connection: redis.Redis, name: str, plan: Plan, scaler: Scaler, seed: int, most: int = MOST
    ) -> None:
        self._plan, self._scaler = plan, scaler
        self._clock = ManualClock(MIDNIGHT)
        self._driver = ClockedDriver(connection, self._clock, self._clock.advance, inf)
        client = FakeClient(Target("single", {}), clock=self._clock)
        client._driver = self._driver
        self._queue: Queue = client.queue(name, create=True, streams=16, streams_per_shard=2, max_deliveries=1000)
        self._later = Later()
        self._pods = Deployment(self._later, self._ready, self._give_back, seed)
        self._autoscaler = Autoscaler(scaler.least, most)
        self._world = World(self._queue, connection, Poller(client), self._pods)
        self._waiting = 0
        """Messages that are written, due and not delivered."""
        self._unwritten: list[Arrival] = []
        self._unsettled: list[tuple[Pod, Running]] = []
        self._unreturned: list[Delivery] = []
        self._ticks = False
        self._numbers = 0
        self._found = Found(scaler.name)

    @property
    def _now(self) -> float:
        return self._clock.wall() - MIDNIGHT

    def run(self) -> Found:
        """Let the day pass."""
        self._queue.declare()
        self._queue.set_limits({LIMITED: Limits(rate=RATE, burst=1)})
        self._prepare()
        while (item := self._later.next()) and item[0] <= self._plan.length:
            at, action = item
            self._clock.advance(max(0.0, at - self._now))
            action()
        found = self._found
        found.pod_seconds = self._pods.lived(self._plan.length)
        found.undone = self._waiting + len(self._unreturned) + sum(len(pod.jobs) for pod in self._pods.pods)
        for pod in [*self._pods.pods]:
            self._pods.gone(pod, self._plan.length)
        self._queue.delete(expected=None)
        return found

    def _prepare(self) -> None:
        plan, later = self._plan, self._later
        for at, group in groupby(plan.arrivals, key=lambda each: each.at):
            later(at, partial(self._write, tuple(group)))
        if plan.paused:
            seconds = plan.paused.end - plan.paused.begin
            later(plan.paused.begin, lambda: self._queue.pause(seconds=seconds))
            later(plan.paused.end, self._work)
            if self._scaler.is_pushed:
                later(plan.paused.end - LEAD + MOMENT, self._look)
        if plan.outage:
            later(plan.outage.begin, lambda: setattr(self._driver, "hook", _away))
            later(plan.outage.end, self._is_back)
        if plan.deploy is not None:
            later(plan.deploy, lambda: self._pods.deploy(self._now))
        later(0.0, self._sync)
        later(0.0, self._poll)

    # Writing.

    def _write(self, arrivals: Sequence[Arrival]) -> None:
        if self._driver.hook:
            self._unwritten += arrivals  # the producer tries again until Redis is back
            return
        now = self._now
        self._queue.write_many(
            [
                Message([each.seconds, each.kind], shard_key=each.tenant, delay=max(0.0, each.due - now))
                for each in arrivals
            ]
        )
        due = sum(each.due <= now for each in arrivals)
        self._waiting += due
        later = [each for each in arrivals if each.due > now]
        for at, group in groupby(later, key=lambda each: each.due):
            self._later(at + MOMENT, partial(self._due, len([*group])))
            if self._scaler.is_pushed:
                self._later(at - LEAD + MOMENT, self._look)
        if self._scaler.is_pushed and not self._pods.replicas:
            self._look()
        if due:
            self._work()

    def _due(self, count: int) -> None:
        self._waiting += count
        self._work()

    # Working.

    def _work(self, done: Sequence[Delivery] = ()) -> None:
        """Let free slots read, as blocked readers do as soon as there is something, and ack what is *done*."""
        if self._driver.hook:  # nothing is done either: that waits until Redis is back
            return
        now = self._now
        free = sum(pod.free(now) for pod in self._pods.pods)
        if not free or not (self._waiting or done):
            for each in done:
                each.ack()
            return
        for each in self._queue.read_many(min(free, 200), visibility_timeout=LEASE, ack=done):
            self._begin(each)
        if self._waiting and free and not self._ticks:
            self._ticks = True
            self._later(self._now + TICK, self._tick)

    def _ready(self, pod: Pod) -> None:
        if self._scaler.needs_beats:
            pod.telling = Telling(self._queue, SLOTS)
            self._beat(pod)
        self._work()

    def _beat(self, pod: Pod) -> None:
        if pod.telling and pod in self._pods.pods:
            if not self._driver.hook:
                pod.telling.beat()
            self._later(self._now + PERIOD, lambda: self._beat(pod))

    def _tick(self) -> None:
        self._ticks = False
        self._work()

    def _begin(self, delivery: Delivery) -> None:
        now = self._now
        pod = max(self._pods.pods, key=lambda each: (each.free(now), -each.number))
        seconds, kind = delivery.payload
        self._waiting -= 1
        wait = delivery.pickup_delay
        if self._plan.paused and self._plan.paused.end <= now:
            wait = min(wait, now - self._plan.paused.end)
        if delivery.count == 1:
            self._found.waits.append((now, wait, kind))
        self._numbers += 1
        told = pod.telling.begin(delivery) if pod.telling else None
        running = Running(delivery, now + seconds, self._numbers, told)
        pod.count(now)
        pod.jobs[running.number] = running
        self._later(running.ends, lambda: self._end(pod, running))

    def _end(self, pod: Pod, running: Running) -> None:
        if running.number not in pod.jobs:  # it was given back
            return
        if self._driver.hook:
            self._unsettled.append((pod, running))
            return
        pod.count(self._now)
        del pod.jobs[running.number]
        if pod.telling and running.told:
            pod.telling.end(running.told)
        self._work((running.delivery,))
        if pod.told_to_end is not None and not pod.jobs:
            self._pods.gone(pod, self._now)

    def _give_back(self, pod: Pod) -> None:
        """Take the jobs of a pod whose grace is over."""
        self._found.begun_anew += len(pod.jobs)
        self._unreturned += [each.delivery for each in pod.jobs.values()]
        pod.count(self._now)
        pod.jobs.clear()
        if not self._driver.hook:
            self._return()

    def _return(self) -> None:
        """Let others have what pods gave back. While Redis is away that waits, as for the ends of leases."""
        for each in self._unreturned:
            each.nack()
        self._waiting += len(self._unreturned)
        self._unreturned.clear()
        self._later(self._now, self._work)

    def _is_back(self) -> None:
        self._driver.hook = None
        unwritten, self._unwritten = self._unwritten, []
        unsettled, self._unsettled = self._unsettled, []
        for pod, running in unsettled:
            self._end(pod, running)
        self._return()
        if unwritten:
            self._write(unwritten)

    # Scaling.

    def _look(self) -> None:
        """Ask whether anybody is needed, as KEDA does."""
        now = self._now
        self._autoscaler.look(self._answer(lambda: self._scaler.is_active(self._world, now)), now)
        self._scale()

    def _poll(self) -> None:
        self._look()
        self._later(self._now + POLL, self._poll)

    def _sync(self) -> None:
        now = self._now
        replicas = self._autoscaler.replicas
        if replicas:  # else only KEDA looks
            self._autoscaler.sync(self._answer(lambda: self._scaler.wanted(self._world, replicas, now)), now)
            self._scale()
        ready = self._pods.ready(now)
        busy = sum(len(pod.jobs) for pod in self._pods.pods)
        self._found.samples.append(Sample(now, self._autoscaler.replicas, len(ready), busy))
        self._later(now + SYNC, self._sync)

    def _scale(self) -> None:
        if self._autoscaler.replicas != self._pods.replicas:
            self._pods.scale(self._autoscaler.replicas, self._now)

    def _answer(self, ask: Callable[[], _T]) -> _T | None:
        """Return what a scaler says; None where Redis is away, as KEDA has an error then."""
        try:
            return ask()
        except BackendError:
            self._found.unknown += 1
            return None


def _away(step: Step, done: bool) -> None:
    """Let no call through."""
    raise BackendTimeout("Redis is away")
