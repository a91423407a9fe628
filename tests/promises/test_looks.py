"""Every figure is that of the moment: against books that know the time, with readers and without."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from shardq import Delivery, Limits, MessageNotFound, Queue, UniqueConflict
from shardq.model.message import OnConflict
from shardq.testing import ManualClock
from tests.promises.clerk import Clerk, Figures, Job
from tests.selection import SOAK
from tests.servers import Server
from tests.simulated import clocked_client

TENANTS = ("a", "b", "c", "d/1")
LOOKS = 100_000 if SOAK else 2_000
STEPS = 60
"""In one queue."""
MAX_DELIVERIES = 3
MODES: tuple[OnConflict, ...] = ("existing", "raise", "replace")
PLAN = "gold"


class Office:
    """A queue by a clock that only the test moves, and the books of it."""

    def __init__(
        self, server: Server, rng: random.Random, *, reads: bool, tenants: Sequence[str] = TENANTS,
        window: int = 1, parents: int = 0,
    ) -> None:  # fmt: skip
        self.rng, self.reads, self.clock, self.tenants = rng, reads, ManualClock(), tenants
        client, _ = clocked_client(server, self.clock)
        cap, total_cap = rng.choice((0, 0, 2)), rng.choice((0, 0, 0, 5))
        self.queue: Queue = client.queue(
            f"looks-{rng.getrandbits(48):x}", streams=rng.choice((1, 4)), streams_per_shard=1,
            max_deliveries=MAX_DELIVERIES, create=True, max_in_flight=cap, total_in_flight=total_cap,
            window=window, parents=parents,
        )  # fmt: skip
        self.queue.declare()
        self.queue.set_plan(PLAN, max_in_flight=2)
        self.books = Clerk(MAX_DELIVERIES, cap, total_cap, plan=2)
        self.held: list[Delivery] = []
        self.log = [f"caps {cap} and {total_cap}, {'with' if reads else 'without'} readers after the first half"]

    @property
    def now(self) -> float:
        """The server's time, in whole ms."""
        return int(self.clock.wall() * 1000 + 1e-3) / 1000

    def step(self, *, may_read: bool) -> None:
        """Do something by chance."""
        weights: dict[Callable[[], None], int] = {
            self.write: 6, self.write_unique: 4, self.elapse: 4, self.settle: 3, self.cancel: 2, self.limit: 2,
            self.pause: 1, self.purge: 1, **({self.read: 6} if may_read else {}),
        }  # fmt: skip
        [each] = self.rng.choices([*weights], [*weights.values()])
        self.log.append(f"{self.now:.3f} {each.__name__}")
        each()

    def shard_key(self, tenant: str, *, is_unique: bool = False) -> str:
        """Under which one of a tenant's messages is written."""
        return tenant

    def write(self) -> None:
        """Some messages, now and then delayed."""
        for _ in range(self.rng.choice((1, 1, 4))):
            tenant, delay = self.rng.choice(self.tenants), self.rng.choice((None, None, 1.0, 7.0))
            message_id = self.queue.write("x", shard_key=self.shard_key(tenant), delay=delay)
            self.books.jobs[message_id] = Job(message_id, tenant, self.now + (delay or 0.0))

    def write_unique(self) -> None:
        """One with one of few unique keys: it is new, or stands for the one that has the key, or replaces it."""
        unique_key, mode = self.rng.choice("xy"), self.rng.choice(MODES)
        tenant, delay = self.tenants[0], self.rng.choice((None, 0.0, 3.0))
        holder = self.books.holder(unique_key, self.now)
        is_leased = holder is not None and self.books.is_leased(holder, self.now)
        conflict = None
        shard_key = self.shard_key(tenant, is_unique=True)
        try:
            written = self.queue.write("x", shard_key=shard_key, unique_key=unique_key, on_conflict=mode, delay=delay)
        except UniqueConflict as error:
            conflict = error.message_id
        assert conflict == (holder.message_id if holder and mode == "raise" else None)
        if conflict:
            return
        if holder is None or (mode == "replace" and is_leased):
            assert written.is_new, f"{unique_key} is free, and its write is told to be {written}"
            if holder:
                holder.unique_key = ""
            job = Job(str(written), tenant, self.now + (delay or 0.0), unique_key=unique_key)
            self.books.jobs[job.message_id] = job
            return
        assert (written, written.is_new) == (holder.message_id, False)
        if mode == "replace" and delay is not None:
            holder.since, holder.leased_until = self.now + delay, 0.0

    def elapse(self) -> None:
        """Time passes."""
        self.clock.advance(self.rng.choice((0.001, 0.5, 2.0, 10.0)))

    def read(self) -> None:
        """Some messages; what it comes across that is spent becomes a dead letter."""
        lasts, now = self.rng.choice((1.0, 5.0)), self.now
        wanted = self.books.figures(now).runnable
        found = self.queue.read_many(self.rng.choice((1, 3, 20)), visibility_timeout=lasts)
        is_some_spent = any(self.books.is_spent(job, now) for job in self.books.waiting(now))
        assert bool(found) == bool(wanted) or is_some_spent, f"runnable is {wanted}, and a read got {len(found)}"
        for delivery in found:
            job = self.books.jobs[delivery.message_id]
            assert job in self.books.waiting(now), f"{job} was delivered"
            assert not self.books.is_spent(job, now), f"{job} was delivered once too often"
            job.leased_until, job.since, job.deliveries = now + lasts, now + lasts, job.deliveries + 1
        self.held += found
        self._forget_dead()

    def settle(self) -> None:
        """One delivery, if its lease is not over: acked, given back at once or later, or extended."""
        if not self.held:
            return
        delivery = self.held.pop(self.rng.randrange(len(self.held)))
        job = self.books.jobs.get(delivery.message_id)
        if job is None or not self.books.is_leased(job, self.now) or job.deliveries != delivery.count:
            return
        if job.is_cancelled or (kind := self.rng.choice(("ack", "nack", "later"))) == "ack":
            self.queue.ack_many([delivery])
            del self.books.jobs[job.message_id]
            return
        delay = 3.0 if kind == "later" else 0.0
        delivery.nack(delay=delay)
        job.leased_until, job.since = 0.0, self.now + delay
        if job.deliveries >= MAX_DELIVERIES:
            del self.books.jobs[job.message_id]  # a dead letter at once

    def cancel(self) -> None:
        """A message wherever it is."""
        if not self.books.jobs:
            return
        job = self.rng.choice([*self.books.jobs.values()])
        is_gone, is_leased = self.books.is_gone(job, self.now), self.books.is_leased(job, self.now)
        try:
            said = self.queue.cancel(job.message_id)
        except MessageNotFound:
            said = "removed"
            assert is_gone, f"{job} was not found"
        else:
            assert not is_gone, f"{job} was {said}"
            assert said == ("in flight" if is_leased else "removed"), f"{job} was {said}"
        job.is_cancelled = True
        if said == "removed":
            del self.books.jobs[job.message_id]

    def limit(self) -> None:
        """A cap of a tenant or none of its own, or it comes to a plan, or the plan changes."""
        tenant, cap = self.rng.choice(self.tenants), self.rng.choice((None, 1, 2))
        match self.rng.choice(("own", "own", "to the plan", "the plan")):
            case "own":
                self.queue.set_limits({tenant: Limits(max_in_flight=cap)})
                self.books.on_plan.discard(tenant)
                self.books.caps.pop(tenant, None)
                if cap is not None:
                    self.books.caps[tenant] = cap
            case "to the plan":
                self.queue.set_limits({tenant: PLAN})
                self.books.on_plan.add(tenant)
            case "the plan":
                self.books.plan = self.rng.choice((1, 3))
                self.queue.set_plan(PLAN, max_in_flight=self.books.plan)

    def pause(self) -> None:
        """A tenant or the queue, for some seconds; or that ends."""
        tenant, seconds = self.rng.choice((*self.tenants, None)), self.rng.choice((0.0, 3.0, 3.0))
        if seconds:
            self.queue.pause(tenant, seconds=seconds)
        else:
            self.queue.resume(tenant)
        until = self.now + seconds if seconds else 0.0
        if tenant is None:
            self.books.paused_until = until
        else:
            self.books.pauses[tenant] = until

    def purge(self) -> None:
        """All that is not in flight."""
        if self.rng.random() < 0.7:
            return
        gone = [job for job in self.books.jobs.values() if not self.books.is_leased(job, self.now)]
        wanted = sum(not self.books.is_gone(job, self.now) for job in gone)
        assert self.queue.purge() == wanted
        for job in gone:
            del self.books.jobs[job.message_id]

    def look(self) -> int:
        """Compare each figure with the books. Returns how many looks that were."""
        stats = self.queue.stats()
        wanted = self.books.figures(self.now)
        told = Figures(stats.backlog, stats.in_flight, stats.delayed, stats.oldest_age, stats.runnable)
        _compare("stats", told, wanted)
        assert not stats.oldest_age_is_sampled
        assert self.queue.len() == wanted.backlog + wanted.in_flight
        table = {each.shard_key: each for each in self.queue.tenants()}
        for name in self.tenants:
            wanted = self.books.tenant(name, self.now)
            one = self.queue.tenant(name)
            _compare(f"tenant {name}", Figures(one.backlog, one.in_flight, one.delayed, one.oldest_age), wanted)
            assert one.backlog == one.in_streams + one.held_back
            if each := table.get(name):
                told = Figures(each.backlog, each.in_flight, each.delayed, each.oldest_age)
                _compare(f"tenants: {name}", told, wanted)
            else:
                assert not wanted.backlog + wanted.delayed
        return 2 + 2 * len(self.tenants)

    def _forget_dead(self) -> None:
        spent = [job for job in self.books.jobs.values() if self.books.is_spent(job, self.now)]
        for job in spent:
            if self.queue.status(job.message_id).state == "dead":
                del self.books.jobs[job.message_id]


def _compare(what: str, told: Figures, wanted: Figures) -> None:
    ages = told.oldest, wanted.oldest
    assert (ages[0] is None) == (ages[1] is None), f"{what}: oldest is {ages[0]}, not {ages[1]}"
    if ages[0] is not None and ages[1] is not None:
        assert abs(ages[0] - ages[1]) < 0.0015, f"{what}: oldest is {ages[0]}, not {ages[1]}"
    told.oldest = wanted.oldest
    assert told == wanted, what


@contextmanager
def told(office: Office, seed: str) -> Iterator[None]:
    try:
        yield
    except AssertionError as error:
        jobs = [str(each) for each in office.books.jobs.values()]
        raise AssertionError("\n".join([seed, *office.log, f"{office.now:.3f}", *jobs, str(error)])) from error


@pytest.mark.once
@pytest.mark.runs_in("test-all", "soak")
@pytest.mark.timeout(0 if SOAK else 120)
@pytest.mark.parametrize("reads", [True, False], ids=["somebody reads", "nobody reads any more"])
def test_each_figure_is_that_of_the_moment(server: Server, seed: int, reads: bool) -> None:
    looks = number = 0
    while looks < LOOKS / 2:
        rng = random.Random(f"{seed}.{number}")
        office = Office(server, rng, reads=reads)
        number += 1
        with told(office, f"{seed}.{number}"):
            for at in range(STEPS):
                office.step(may_read=reads or at < STEPS / 2)
                looks += office.look()
        office.queue.delete(expected=None)
