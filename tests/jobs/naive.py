"""The pivot once more, as anybody would write it at first: a loop over events with a dict for each message, and for
what was blocked a loop over all ms. It is the model that the real one is compared with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

ENDS = ("acked", "rejected", "dead", "expired", "cancelled", "purged", "vanished")
WAITS = ("written", "replaced", "nacked", "recovered", "lease_ended", "redriven", "hastened")


@dataclass
class Job:
    """A message from its write, or a redrive, to its end; times are in ms."""

    message_id: str
    redriven: int
    begun: bool
    partition: int
    shard_key: str | None = None
    task: str | None = None
    written_at: int | None = None
    ready_at: int | None = None
    first_at: int | None = None
    last_at: int | None = None
    ended_at: int | None = None
    outcome: str | None = None
    attempts: int = 0
    uncounted: int = 0
    replaced: int = 0
    client: str | None = None
    work: int = 0
    ran: int | None = None
    whole: bool = True
    state: str = "in flight"
    since: int | None = None
    count: int = 0
    waited: list[tuple[int, int | None]] = field(default_factory=list)
    held: list[tuple[int, int | None]] = field(default_factory=list)
    blocked: dict[str, int] = field(default_factory=lambda: {"pause": 0, "rate": 0, "cap": 0})

    def leave(self, time: int) -> None:
        """What it was until now is over."""
        if self.since is None:
            return
        if self.state == "waiting":
            self.waited.append((self.since, max(self.since, time)))
        elif self.state == "in flight":
            self.held.append((self.since, max(self.since, time)))


class Model:
    """Reads events one by one."""

    def __init__(self) -> None:
        self.open: dict[str, Job] = {}
        self.ended: list[Job] = []
        self.letters: dict[str, Job] = {}

    def read(self, event: dict[str, Any]) -> None:
        """Read one event, whose times are in ms."""
        kind, name, time = event["kind"], event["message_id"], event["time"]
        if kind == "lost":
            for job in self.open.values():
                job.whole = job.whole and job.partition != event["partition"]
        if name is None:
            return
        if kind == "deleted":
            self.letters.pop(name, None)
            return
        if kind == "redriven" and name in self.open:
            before = self.letters[name] = self.open[name]
            before.whole, before.outcome, before.ended_at = False, "dead", time
            self._end(before)
        job = self.open.get(name) or self._begin(event)
        job.shard_key = event["shard_key"] or job.shard_key
        job.task = event["task"] or job.task
        job.work += round((event["charged_ms"] or 0) * 10)
        if event["ran_ms"] is not None:
            job.ran = (job.ran or 0) + round(event["ran_ms"] * 10)
        if kind not in ("charged", "cancelling"):
            self._act(job, event)

    def _begin(self, event: dict[str, Any]) -> Job:
        name, kind = event["message_id"], event["kind"]
        former = self.letters.pop(name, None)
        job = self.open[name] = Job(name, 0, kind == "written", event["partition"])
        if former is not None:
            job.redriven, job.written_at = former.redriven + 1, former.written_at
            job.shard_key, job.task = former.shard_key, former.task
            job.begun = kind == "redriven"
        elif kind == "redriven":
            job.redriven = 1
        job.whole = job.begun
        return job

    def _act(self, job: Job, event: dict[str, Any]) -> None:
        kind, time, state = event["kind"], event["time"], job.state
        job.leave(time)
        if kind in ("nacked", "recovered", "lease_ended") and state == "in flight" and event["count"] < job.count:
            job.uncounted += 1
        if kind in WAITS:
            job.state, job.since = "waiting", max(time, event["due"] or 0)
            if job.first_at is None:
                job.ready_at, job.waited = job.since, []
        elif kind == "delivered":
            job.state, job.since, job.count = "in flight", time, event["count"]
            job.first_at, job.last_at = job.first_at if job.first_at is not None else time, time
            job.attempts += 1
            job.client = event["client"]
        elif kind == "no_room":
            job.state, job.since = "no room", time
        else:
            job.outcome, job.ended_at = kind, time
            self._end(job)
            if kind in ("rejected", "dead"):
                self.letters[job.message_id] = job
        if kind == "written":
            job.written_at = time
        job.replaced += kind == "replaced"

    def _end(self, job: Job) -> None:
        if job.ready_at is not None and job.ended_at is not None and job.ready_at > job.ended_at:
            job.ready_at = None
        del self.open[job.message_id]
        self.ended.append(job)

    def finish(self, events: list[dict[str, Any]]) -> None:
        """Find what was blocked, when all is read."""
        last = max((event["time"] for event in events), default=0)
        for job in self.open.values():
            if job.state == "waiting" and job.since is not None:
                job.waited.append((job.since, None))
            elif job.state == "in flight" and job.since is not None:
                job.held.append((job.since, None))
        jobs = [*self.ended, *self.open.values()]
        for key in {job.shard_key for job in jobs if job.shard_key is not None}:
            block([job for job in jobs if job.shard_key == key], key, events, last)


def block(jobs: list[Job], key: str, events: list[dict[str, Any]], last: int) -> None:
    """Count for each job of a shard key the ms in which it waited and was blocked."""
    told = [each for each in events if each["message_id"] is None and each["shard_key"] in (None, key)]
    deliveries = sorted(start for job in jobs for start, _ in job.held)
    first = min((event["time"] for event in events), default=0)
    full_at, before = 0.0, None
    for now in range(first, last):
        paused, cap, rate, burst = rules(told, key, now)
        if (rate, cap, paused, burst) != before and rate:
            full_at = min(full_at, now + burst * 1000 / rate)
        before = (rate, cap, paused, burst)
        for _ in range(deliveries.count(now)):
            full_at = max(full_at, now - min(50, 1000 / rate)) + 1000 / rate if rate else 0.0
        flight = sum(start <= now and (end is None or now < end) for job in jobs for start, end in job.held)
        why = "pause" if paused else ""
        why = why or ("rate" if rate and now < math.ceil(full_at - (burst - 1) * 1000 / rate) else "")
        why = why or ("cap" if cap and flight >= cap else "")
        if not rate:
            full_at = 0.0
        for job in jobs:
            if why and any(start <= now < (last if end is None else end) for start, end in job.waited):
                job.blocked[why] += 1


def rules(told: list[dict[str, Any]], key: str, now: int) -> tuple[bool, int, float, int]:
    """Return whether a shard key is paused, its cap, its rate and its burst at a time."""
    paused, cap, rate, burst = {None: False, key: False}, 0, 0.0, 0
    for event in told:
        if event["time"] > now:
            break
        is_on = event["due"] is None or now < event["due"]
        values = dict(event["values"] or ())
        if event["kind"] == "paused":
            paused[event["shard_key"]] = is_on
        elif event["kind"] == "resumed":
            paused[event["shard_key"]] = False
        elif event["kind"] == "limited":
            cap = int(values.get("max_in_flight", 0)) if is_on else 0
            rate = float(values.get("rate", 0)) if is_on else 0.0
            burst = int(values.get("burst", 0)) if is_on else 0
    return any(paused.values()), cap, rate, burst or max(1, math.ceil(rate))
