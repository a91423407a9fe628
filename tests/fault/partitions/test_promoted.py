"""A primary is killed and its replica promoted by force: what is lost is what docs/durability.md says may be lost.

With durability="replica(1)" nothing that was confirmed is lost. With the levels below, what is lost was confirmed while
the replica had not come so far: each loss is explained by the offsets of both.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from redis.exceptions import RedisError

from shardq import BackendError, Client, DurabilityUnknown, PartlyWritten, Queue, Written
from shardq.drivers import wire
from shardq.partitions import asking, parts, resize
from tests.clients import CLIENT_KINDS, ClientKind, opened
from tests.conftest import Record
from tests.fault.partitions.spares import SpareCluster
from tests.selection import SOAK
from tests.servers import Server, ServerKind
from tests.waiting import eventually

PARTITIONS = 3
TENANTS = [f"tenant-{number}" for number in range(30)]
LEVELS = ["none", "replica(1)"]
ROUNDS = 4 if SOAK else 1
"""How often each primary is replaced under load."""

SOON = 60.0
pytestmark = [pytest.mark.runs_in("test-all", "soak"), pytest.mark.timeout(900 if SOAK else 300)]


@pytest.fixture
def spares(kind: ServerKind | None, quick_disk: Path) -> Iterator[SpareCluster]:
    with SpareCluster(kind, quick_disk) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A map is old after a tenth of the time."""
    for room in (asking, parts):
        monkeypatch.setattr(room, "MAX_AGE", 0.5)
    monkeypatch.setattr(resize, "PAUSE_SECONDS", 1.0)


@dataclass
class Wrote:
    """A message whose write was confirmed: its value, its primary, and how far that was before and after the call."""

    value: str
    primary: Server
    before: float
    after: float


@dataclass
class Judge:
    """Which messages may be lost: those of a primary that had come further than its replica when that was promoted."""

    level: str
    confirmed: list[Wrote] = field(default_factory=list)
    promoted: dict[Server, list[tuple[int, int]]] = field(default_factory=dict)

    def note(self, primary: Server, offset: int) -> None:
        """Its replica was promoted at this *offset*. What was confirmed before counts by it."""
        self.promoted.setdefault(primary, []).append((len(self.confirmed), offset))

    def check(self, found: set[str]) -> list[str]:
        """Return what is lost, once each loss is explained. What was confirmed and may not be lost is there."""
        lost = [each for each in self.confirmed if each.value not in found]
        if self.level != "none":
            assert lost == []
        for each in lost:
            assert self._may_be_lost(each), each
        return [each.value for each in lost]

    def _may_be_lost(self, each: Wrote) -> bool:
        at = self.confirmed.index(each)
        return any(at < until and each.after > offset for until, offset in self.promoted.get(each.primary, []))


def offset_of(node: Server) -> float:
    """How far a primary is; infinite if it is dead."""
    try:
        return float(node.info("replication")["master_repl_offset"])
    except (RedisError, OSError):
        return math.inf


def drained(cluster: SpareCluster) -> set[str]:
    """The values of all messages that there are."""
    with Client.from_url(cluster.url, timeout=SOON) as client:
        queue = client.queue("jobs", create=False)
        found: list[Any] = []
        while some := queue.read_many(500):
            assert queue.ack_many(some) == []
            found += some
        assert queue.len() == 0
    values = [each.payload for each in found]
    assert len(values) == len({*values}), "stored twice"
    return {*values}


def primary_of(cluster: SpareCluster, queue: Any, tenant: str) -> Server:
    """The primary that has the home of *tenant*."""
    known = queue.state.parts
    return cluster.members[cluster.owner(cluster.slot_of(known.states[known.number_of(tenant)].keys.meta))]


@pytest.mark.parametrize("level", LEVELS)
def test_what_was_confirmed_while_the_replica_was_away_is_lost_only_where_the_level_says_so(
    spares: SpareCluster, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica of one primary hears nothing from some moment on. Then that primary dies."""
    judge, doubtful = Judge(level), set[str]()
    monkeypatch.setattr(wire, "REPLICA_TIMEOUT_MS", 20_000)
    with Client.from_url(spares.url, timeout=SOON, durability=level) as client:
        queue = client.queue("jobs", partitions=PARTITIONS, streams=4, streams_per_shard=2)
        queue.declare()

        def write(name: str) -> None:
            for tenant in TENANTS:
                value, primary = f"{name} {tenant}", primary_of(spares, queue, tenant)
                before = offset_of(primary)
                try:
                    queue.write(value, shard_key=tenant)
                except DurabilityUnknown:
                    doubtful.add(value)
                else:
                    judge.confirmed.append(Wrote(value, primary, before, offset_of(primary)))

        write("early")
        spares.wait_whole()
        dying = primary_of(spares, queue, TENANTS[0])
        spare = spares.spares[dying]
        spare.pause()
        try:
            dying.run("CLIENT", "KILL", "TYPE", "replica")
            monkeypatch.setattr(wire, "REPLICA_TIMEOUT_MS", 100)
            write("late")
            dying.kill9()
        finally:
            spare.resume()
        offset = spares.promote(dying)
        judge.note(dying, offset)
    late = {f"late {tenant}" for tenant in TENANTS if primary_of(spares, queue, tenant) is spare}
    lost = judge.check(drained(spares))
    assert late
    if level == "none":
        assert {*lost} == late
        assert all(each.before >= offset for each in judge.confirmed if each.value in late)
    else:
        assert doubtful >= late
        assert lost == []


class Writer:
    """Writes one by one and in batches with a client of its own, until it is told to stop."""

    def __init__(self, cluster: SpareCluster, kind: ClientKind, judge: Judge, seed: int) -> None:
        self._cluster, self._kind, self._judge = cluster, kind, judge
        self._rng, self.over, self.failed = random.Random(f"{seed} {kind}"), Event(), list[BaseException]()
        self.confirmed = 0
        self._thread = Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        """Let it end."""
        self.over.set()
        self._thread.join(2 * SOON)
        assert self.failed == []

    def goes_on(self) -> None:
        """Wait until more is confirmed."""
        wanted = self.confirmed + 20
        eventually(lambda: self.failed or self.confirmed >= wanted, SOON, what="it writes on")
        assert self.failed == []

    def _run(self) -> None:
        try:
            with opened(self._kind, self._cluster.url, timeout=SOON, durability=self._judge.level) as client:
                queue = client.queue("jobs", create=False)
                queue.len()
                number = 0
                while not self.over.is_set():
                    number += 1
                    self._write(queue, f"{self._kind} {number}", self._rng.choice(TENANTS))
        except BaseException as error:  # noqa: BLE001 (the test raises it)
            self.failed.append(error)

    def _write(self, queue: Queue, name: str, tenant: str) -> None:
        values = [f"{name} {at}" for at in range(self._rng.choice([1, 4]))]
        primary = None
        with contextlib.suppress(RedisError, OSError, AssertionError):  # a node is dead, or nobody has the slot
            primary = primary_of(self._cluster, queue, tenant)
        before = offset_of(primary) if primary else math.inf
        results = self._results(queue, values, tenant)
        after = offset_of(primary) if primary else math.inf
        for value, each in zip(values, results, strict=True):
            if isinstance(each, Written) and primary:
                self._judge.confirmed.append(Wrote(value, primary, before, after))
                self.confirmed += 1

    def _results(self, queue: Queue, values: list[str], tenant: str) -> list[Any]:
        try:
            if len(values) == 1:
                return [queue.write(values[0], shard_key=tenant)]
            return [*queue.write_many([(each, tenant) for each in values])]
        except PartlyWritten as partly:
            return [*partly.results]
        except BackendError as error:  # nobody knows whether a replica has it, or whether it is stored
            return [error] * len(values)


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_confirmed_under_load_is_lost_only_where_the_level_says_so(
    spares: SpareCluster, level: str, seed: int, record_property: Record
) -> None:
    """Each primary is killed under load and replaced by its replica, and the queue is resized meanwhile."""
    judge = Judge(level)
    with Client.from_url(spares.url, timeout=SOON, durability="replica(1)") as client:
        queue = client.queue("jobs", partitions=PARTITIONS, streams=4, streams_per_shard=2)
        queue.declare()
        spares.wait_whole()
        writers = [Writer(spares, kind, judge, seed) for kind in CLIENT_KINDS]
        try:
            for wanted in (4, 2, 5, 3)[:ROUNDS]:
                for primary in spares.primaries():
                    for each in writers:
                        each.goes_on()
                    primary.kill9()
                    judge.note(primary, spares.promote(primary))
                queue.resize(partitions=wanted)
        finally:
            for each in writers:
                each.end()
    lost = judge.check(drained(spares))
    record_property("note", f"promoted, {level}: {len(judge.confirmed):,} confirmed, {len(lost):,} lost")


def test_the_judge_sees_what_may_not_be_lost() -> None:
    """Of what its replica had, nothing; nor of what was confirmed after that was promoted."""
    primary: Any = object()
    for level, after, has_died, may_be_lost in [
        ("none", 8, True, True), ("none", 7, True, False), ("none", 8, False, False), ("replica(1)", 8, True, False),
    ]:  # fmt: skip
        judge = Judge(level)
        if not has_died:
            judge.note(primary, 7)
        judge.confirmed.append(Wrote("v", primary, 1, after))
        if has_died:
            judge.note(primary, 7)
        assert judge.check({"v"}) == []
        with contextlib.nullcontext() if may_be_lost else pytest.raises(AssertionError):
            assert judge.check(set()) == ["v"]
