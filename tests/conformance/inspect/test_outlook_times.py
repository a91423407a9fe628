"""When something is served, and what would help: what an outlook says beside what then happens, on a real queue."""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass, field

import pytest

from shardq import Limits, Outlook, Queue
from shardq.ops.inspect import outlook as op
from shardq.outlook.outlook import outlook_of
from shardq.testing import ManualClock
from tests.outlook.pool import Pool
from tests.servers import Server
from tests.simulated import ClockedDriver, clocked_client

MEDIAN = 1.5
WORST = 3.0
"""The factor by which 95 of 100 times are off at most."""
ENOUGH = 100
"""Times of which five in a hundred may be off by more."""
FEW = 5
"""With fewer messages the time is that of one turn more or less."""


@dataclass
class Case:
    """A queue in which tenants wait, with limits, pauses and weights by chance, and others write meanwhile."""

    queue: Queue
    pool: Pool
    sizes: dict[str, int]
    limits: dict[str | bytes, Limits | str]
    workers: int
    quiet: float
    """Messages that tenants write each second that do not wait long."""
    driver: ClockedDriver
    owed: float = 0.0
    at: float = 0.0
    outlook: Outlook = field(init=False)

    def write(self) -> None:
        """Write what quiet tenants would have written since the last time."""
        self.owed += (self.pool.now - self.at) * self.quiet
        self.at = self.pool.now
        while self.owed >= 1:
            self.owed -= 1
            self.queue.write(-1, shard_key=f"quiet-{self.pool.rng.randrange(50)}")

    def warm(self) -> None:
        """Work for as long as it takes to know how fast it is, then look ahead."""
        pool = self.pool
        self.at = pool.now
        pool.run(lambda: pool.delivered >= pool.slots + 4, self.write)
        pool.forget()
        pool.run(lambda: sum(pool.done.values()) >= 2 * pool.slots + 20, self.write)
        state = self.queue.state
        facts = self.queue.client.run(op.facts(state, state.until()))
        self.outlook = outlook_of(pool.told(facts, self.workers, self.quiet))
        pool.watched = {key: size - 1 for key, size in self.sizes.items()}
        pool.served_at.clear()

    def end(self) -> None:
        """Leave nothing behind."""
        self.queue.delete(expected=None)
        self.driver._connection.close()

    def go_on(self, wanted: set[str]) -> dict[str, float]:
        """Work until all of these are served. Return in how many seconds each was."""
        start = self.pool.now
        self.pool.run(lambda: wanted <= self.pool.served_at.keys(), self.write)
        return {key: at - start for key, at in self.pool.served_at.items()}


def a_case(server: Server, name: str, number: int, rng: random.Random) -> Case:
    """Return a queue in any state."""
    clock = ManualClock()
    client, driver = clocked_client(server, clock)
    streams, window = rng.choice((4, 16)), rng.choice((1, 1, 3))
    queue = client.queue(f"outlook-{name}-{number}", streams=streams, streams_per_shard=2, window=window)
    tenants, slots, workers = rng.choice((2, 3, 6, 12, 20)), rng.choice((4, 8, 16)), rng.choice((1, 2, 4))
    keys = [f"t{at}" for at in range(tenants)]
    sizes = {key: int(2 ** rng.uniform(2, 4.6)) for key in keys} | {"t0": rng.choice((60, 150, 250))}
    costs = {key: rng.choice((1.0, 1.0, 0.3, 3.0)) for key in keys} if rng.random() < 0.4 else {}
    limited = rng.sample(keys[1:], max(1, tenants // 5)) if rng.random() < 0.5 else []
    limits: dict[str | bytes, Limits | str] = {
        key: rng.choice((Limits(max_in_flight=1), Limits(max_in_flight=2), Limits(rate=rng.choice((0.2, 1.0, 3.0)))))
        for key in limited
    }
    queue.write_many([(at, key) for key in keys for at in range(sizes[key])])
    if rng.random() < 0.3:
        queue.set_weights({key: rng.choice((1, 2, 5)) for key in keys})
    if limits:
        queue.set_limits(limits)
    quiet = rng.choice((0.0, 0.0, 0.2, 0.5)) * slots / (statistics.mean(costs.values()) if costs else 1.0)
    if tenants > 2 and rng.random() < 0.3:
        queue.pause(keys[1], seconds=rng.choice((20, 60)))
    return Case(queue, Pool(queue, clock, slots, rng, costs), sizes, limits, workers, quiet, driver)


def factor(one: float, other: float) -> float:
    """Return by how much two times differ."""
    return max(one, other) / max(1e-9, min(one, other))


def judge(found: list[float], least: int) -> None:
    """Hold what was found against the promise; of few times the worst say nothing of the 95th in a hundred."""
    found.sort()
    print(f"{len(found)} times: median {statistics.median(found):.2f}, 95 % {found[int(0.95 * len(found))]:.2f}")
    assert len(found) >= least
    assert statistics.median(found) <= MEDIAN
    assert len(found) < ENOUGH or found[int(0.95 * len(found))] <= WORST


def served_in(server: Server, seed: int, runs: int) -> None:
    """Compare when each tenant is served with what was said."""
    found = []
    for number in range(runs):
        case = a_case(server, "served", number, random.Random(f"{seed}.{number}"))
        case.warm()
        told = {
            str(each.shard_key): each.served_in
            for each in case.outlook.tenants
            if each.shard_key in case.sizes and each.waits >= FEW
        }
        happened = case.go_on(set(told))
        found += [factor(seconds, happened[key]) for key, seconds in told.items() if seconds is not None]
        assert all(seconds is not None for seconds in told.values())
        case.end()
    judge(found, runs)


@pytest.mark.once
@pytest.mark.timeout(120)
def test_tenants_are_served_when_it_was_said(server: Server, seed: int) -> None:
    served_in(server, seed, 4)


@pytest.mark.once
@pytest.mark.runs_in("test-all")
@pytest.mark.timeout(600)
def test_tenants_are_served_when_it_was_said_fifty_times(server: Server, seed: int) -> None:
    served_in(server, seed, 50)


def more_workers(case: Case) -> None:
    """Two more workers like those that there are."""
    case.pool.slots += 2 * (case.pool.slots // case.workers)


def helped(server: Server, seed: int, runs: int) -> None:
    """Compare what would help with what it does, each in a queue of its own that went the same way before."""
    found = []
    for number in range(runs):
        for kind in ("two more workers", "no limit", "no pause"):
            case = a_case(server, f"help-{kind.replace(' ', '-')}", number, random.Random(f"{seed}.{number}"))
            case.warm()
            helps = [each for each in case.outlook.helps if each.what.startswith(kind) and each.seconds is not None]
            if helps and helps[0].helps:
                found.append(factor(helps[0].seconds or 0.0, after(case, str(helps[0].shard_key or ""))))
            case.end()
    judge(found, runs // 2)


def after(case: Case, key: str) -> float:
    """Do what would help: with a shard key end its limit and its pause. Return in how many seconds it is served."""
    if key:
        case.queue.set_limits({key: Limits()})
        case.queue.resume(key)
        return case.go_on({key})[key]
    more_workers(case)
    wanted = {
        str(each.shard_key) for each in case.outlook.tenants if each.reasons["turn"] and each.shard_key in case.sizes
    }
    happened = case.go_on(wanted)
    return max(happened[key] for key in wanted - {*case.limits})


@pytest.mark.once
@pytest.mark.runs_in("test-all")
@pytest.mark.timeout(600)
def test_what_would_help_helps_as_much_as_was_said(server: Server, seed: int) -> None:
    helped(server, seed, 20)
