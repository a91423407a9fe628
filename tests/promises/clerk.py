"""Who knows the time: what a queue has at a moment, in plain Python, and how far its figures are from that.

It knows what was asked of the queue, and what reads handed out. From that it tells what waits, is in flight and is
delayed at any time, whether or not somebody has read since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field


@dataclass
class Job:
    """A message: since when it can be delivered, and until when it is leased (0: it is not)."""

    message_id: str
    tenant: str
    since: float
    leased_until: float = 0.0
    deliveries: int = 0
    is_cancelled: bool = False
    unique_key: str = ""


@dataclass
class Figures:
    """What the queue, or one tenant, has at a moment. `oldest` is in seconds, None if nothing waits."""

    backlog: int
    in_flight: int
    delayed: int
    oldest: float | None
    runnable: int = 0


@dataclass
class Clerk:
    """The books of one queue. 0 is no limit."""

    max_deliveries: int
    max_in_flight: int = 0
    total_in_flight: int = 0
    paused_until: float = 0.0
    pauses: dict[str, float] = field(default_factory=dict)
    caps: dict[str, int] = field(default_factory=dict)
    plan: int = 0
    on_plan: set[str] = field(default_factory=set)
    jobs: dict[str, Job] = field(default_factory=dict)

    def is_leased(self, job: Job, now: float) -> bool:
        """Whether somebody has a live lease of it."""
        return job.leased_until > now

    def is_gone(self, job: Job, now: float) -> bool:
        """Whether it was cancelled while somebody had it, whose lease is over."""
        return job.is_cancelled and not self.is_leased(job, now)

    def is_spent(self, job: Job, now: float) -> bool:
        """Whether it had its last delivery, so that the next read makes it a dead letter."""
        return not self.is_leased(job, now) and job.deliveries >= self.max_deliveries

    def waiting(self, now: float, tenant: str | None = None) -> Iterator[Job]:
        """What a read comes across, if there are no limits."""
        for job in self._of(tenant):
            if not (self.is_leased(job, now) or job.since > now or job.is_cancelled):
                yield job

    def holder(self, unique_key: str, now: float) -> Job | None:
        """The message that has a unique key: it is worked on, or can still be delivered."""
        having = [job for job in self.jobs.values() if job.unique_key == unique_key and not job.is_cancelled]
        return next((job for job in having if not self.is_spent(job, now)), None)

    def may_have(self, tenant: str, now: float) -> int:
        """How many more of a tenant its limits allow."""
        if self.pauses.get(tenant, 0.0) > now:
            return 0
        cap = self.plan if tenant in self.on_plan else self.caps.get(tenant, self.max_in_flight)
        return cap - self._flight(tenant, now) if cap else 10**9

    def figures(self, now: float) -> Figures:
        """What the queue has."""
        found = self._counted(now, None)
        tenants = {job.tenant for job in self.jobs.values()}
        free = {tenant: max(0, self.may_have(tenant, now)) for tenant in tenants}
        found.runnable = sum(min(free[tenant], sum(1 for _ in self.waiting(now, tenant))) for tenant in tenants)
        if self.total_in_flight:
            found.runnable = min(found.runnable, max(0, self.total_in_flight - found.in_flight))
        if self.paused_until > now:
            found.runnable = 0
        else:
            found.oldest = _age(now, (job for job in self.waiting(now) if free[job.tenant]))
        return found

    def tenant(self, name: str, now: float) -> Figures:
        """What one tenant has. Its oldest message counts although a limit blocks it."""
        found = self._counted(now, name)
        found.oldest = _age(now, self.waiting(now, name))
        return found

    def _counted(self, now: float, tenant: str | None) -> Figures:
        delayed = sum(job.since > now and not self.is_leased(job, now) for job in self._of(tenant))
        flight = sum(self.is_leased(job, now) for job in self._of(tenant))
        return Figures(sum(1 for _ in self.waiting(now, tenant)), flight, delayed, None)

    def _of(self, tenant: str | None) -> Iterable[Job]:
        return [job for job in self.jobs.values() if tenant in (None, job.tenant)]

    def _flight(self, tenant: str, now: float) -> int:
        return sum(self.is_leased(job, now) for job in self._of(tenant))


def _age(now: float, jobs: Iterable[Job]) -> float | None:
    since = min((job.since for job in jobs), default=None)
    return None if since is None else now - since
