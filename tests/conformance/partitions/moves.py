"""What a random walk over a queue of several partitions does: each public verb of a queue is in one of its moves."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

import pytest

from shardq import ConfigError, Empty, Limits, Queue, QueueNotEmpty, Where, Written
from shardq.model.action import ActionStatus
from shardq.model.where import WhereState
from shardq.tasks import Tasks
from tests.conformance.conftest import OpenQueue
from tests.conformance.random_ops import KEYS, RandomOps
from tests.conformance.world import World

SIZES = (1, 2, 3, 4, 6)
LASTING = 10**6
"""Seconds for which keys are remembered: longer than a walk."""

NAMES = ("a", "b", "f f")
"""Who gets limits, weights and pauses: of no parent."""

STATES: tuple[WhereState | None, ...] = (None, "waiting", "delayed", "in_flight")
Key = str | bytes


tasks = Tasks("walk")


@tasks.task
def work() -> str:
    """What a job may be of."""
    return "done"


class PartedOps(RandomOps):
    """Two clients do all that a queue can do, which has more and fewer partitions meanwhile.

    The *other* client hears of these when its map is old, some seconds later.
    """

    def __init__(self, open_queue: OpenQueue, world: World, rng: random.Random, other: Queue) -> None:
        super().__init__(open_queue, world, rng, dedup_window=LASTING, max_dedup=10**6, result_ttl=LASTING,
                         journal=10**6, max_schedules=1000)  # fmt: skip
        self._other, self._first = other, dict[tuple[Key, str], Written]()
        self._unique = dict[tuple[Key, str], str]()
        self._told, self._position = set[str](), 0
        self._was_dead = set[str]()  # their unique keys are free, also once they are redriven
        self._limits, self._paused = dict[Key, Limits | str](), set[Key | None]()
        self._acts |= {
            self._write_keyed: 15, self._write_unique: 5, self._repartition: 3, self._read_one: 3, self._finish: 3,
            self._reject_many: 0.5, self._act: 2, self._stop: 0.5, self._delete_dead: 0.5, self._purge: 0.3,
            self._purge_of: 0.7, self._delete: 0.3, self._limit: 1, self._plan: 0.5, self._pause: 1, self._resume: 1,
            self._assign: 0.7, self._unassign: 0.3, self._schedule: 0.7, self._look_at_messages: 1,
            self._look_at_tenants: 1, self._look_at_settings: 1, self._look_at_numbers: 1, self._look_at_journal: 1,
        }  # fmt: skip

    def moves(self) -> Iterable[Callable[[], None]]:
        """All that a step may do."""
        return self._acts

    def remaining(self) -> set[str]:
        """As of any queue, once nothing is held back any more. The journal has told of each message."""
        self.queue.resume()
        self.queue.set_limits(dict.fromkeys(NAMES, Limits()))
        for name in NAMES:
            self.queue.resume(name)
        self._look_at_journal()
        return super().remaining()

    # --- what is there

    def listed(self) -> dict[str, Key]:
        """The shard key of each message that is not dead, by its id, as a look at all states lists them."""
        found: dict[str, Key] = {}
        for state in ("waiting", "held_back", "delayed", "in_flight"):
            after = None
            while True:
                page = self.queue.peek(1000, state=state, after=after)
                found |= {each.message_id: each.shard_key for each in page.messages if not each.cancelled}
                if (after := page.cursor) is None:
                    break
        return found

    def letters(self) -> dict[str, Key]:
        """The same of dead letters."""
        found = {each.message_id: each.shard_key for each in self.queue.dead(1000)}
        self._was_dead |= found.keys()
        return found

    @contextmanager
    def _removing(self) -> Iterator[dict[str, Key]]:
        """What is not listed any more after this is not expected any more. It is told then, with its shard keys."""
        before, gone = self.listed() | self.letters(), dict[str, Key]()
        yield gone
        left = self.listed() | self.letters()
        assert left.keys() <= before.keys()
        gone |= {each: before[each] for each in before.keys() - left.keys()}
        self.alive -= gone.keys()

    def _is_of(self, key: Key, name: Key) -> bool:
        """Whether *name* is the shard key, or its parent where there are any."""
        first = key.partition("/")[0] if isinstance(key, str) else key
        return key == name or bool(self.queue.settings().parents and first == name)

    def _is_fair(self) -> bool:
        return bool(self.queue.settings().window)

    # --- writes and reads

    def _redrive(self) -> None:
        self.letters()
        super()._redrive()

    def _write_keyed(self) -> None:
        # New ones all the time: each tenant has about two of them that only one client has written.
        tenant, key = self._rng.choice(KEYS), f"key {len(self._first) // len(KEYS) + self._rng.randrange(2)}"
        queue = self._rng.choice((self.queue, self._other))
        written = queue.write(next(self._numbers), shard_key=tenant, dedup_key=key)
        assert written.is_new == ((tenant, key) not in self._first)
        assert written == self._first.setdefault((tenant, key), written)
        if written.is_new:
            self.alive.add(written)

    def _write_unique(self) -> None:
        """One of a few keys, whose message lives or not; by either client."""
        tenant, key = self._rng.choice(KEYS), self._rng.choice("xy")
        before, queue = self._unique.get((tenant, key), ""), self._rng.choice((self.queue, self._other))
        lives = before in self.listed() and before not in self._was_dead
        written = queue.write(next(self._numbers), shard_key=tenant, unique_key=key)
        assert (written == before, written.is_new) == (lives, not lives)
        self._unique[tenant, key] = written
        self.alive.add(written)

    def _read_one(self) -> None:
        """Read by either client, now and then with the ack of what it holds."""
        queue = self._rng.choice((self.queue, self._other))
        own = [each for each in self.held.values() if each.queue is queue]
        delivery = self._rng.choice([None, *own])
        if delivery is not None:
            del self.held[delivery.message_id]
        try:
            found = queue.read(ack=delivery, visibility_timeout=5000.0)
        except Empty:
            pass
        else:
            assert found.message_id in self.alive
            self.held[found.message_id] = found
        if delivery is not None and not delivery.lost:
            self.alive.discard(delivery.message_id)

    def _finish(self) -> None:
        """Extend one, tell how far it is, and finish it with a result."""
        if self.held:
            delivery = self.held.pop(self._rng.choice(list(self.held)))
            delivery.extend(5000.0)
            delivery.progress(1, 2)
            assert self.queue.status(delivery.message_id).state == "in_flight"
            delivery.ack(result=delivery.message_id)
            self.alive.discard(delivery.message_id)
            assert self.queue.job(work, delivery.message_id).id == delivery.message_id
            assert self.queue.result(delivery.message_id) == delivery.message_id
            assert self.queue.status(delivery.message_id).state == "done"

    def _reject_many(self) -> None:
        batch = [self.held.pop(each) for each in list(self.held)[: self._rng.randint(1, 4)]]
        self.queue.reject_many(batch, "bad")

    # --- operators

    def _repartition(self) -> None:
        wanted = self._rng.choice(SIZES)
        self.log[-1] += f" to {wanted}"
        assert self.queue.resize(partitions=wanted)[1] == wanted

    def _resize(self) -> None:
        try:
            super()._resize()
        except ConfigError:
            assert self.queue.assignment()  # a shard needs its streams

    def _act(self) -> None:
        """Something on all that a filter selects, or on a few of them."""
        queue, name, limit = self.queue, self._rng.choice(KEYS), self._rng.choice((None, 1, 3))
        verb = self._rng.choice(("cancel", "delete", "redrive", "retry"))
        letters = self.letters()
        with self._removing() as gone:
            if verb == "cancel":
                action = queue.cancel(Where(tenant=name, state=self._rng.choice(STATES)), limit=limit)
            elif verb == "delete":
                action = queue.delete_dead(Where(state="dead"), limit=limit)
            elif verb == "redrive":
                action = queue.redrive(Where(state="dead"), limit=limit)
            else:
                action = queue.retry_now(Where(state="retrying"), limit=limit)
            done: ActionStatus = action.wait()
        self.log[-1] += f": {verb} {done.done}"
        assert (done.state, done.passed) == ("done", 0)
        assert limit is None or done.done <= limit
        assert queue.actions()[0].id == action.id
        if verb == "cancel":
            assert all(self._is_of(key, name) for key in gone.values())
        if verb in ("cancel", "delete"):
            assert done.done == len(gone)
        else:
            assert gone == {}
        if verb in ("delete", "redrive"):
            assert done.done == min(len(letters), len(letters) if limit is None else limit)
            assert len(self.letters()) == len(letters) - done.done

    def _stop(self) -> None:
        """An action is stopped, and another client goes on with it."""
        before = self.letters()
        action = self.queue.redrive(Where(state="dead"))
        self.queue.stop_action(action.id)
        if action.wait().state == "stopped":
            assert self._other.take_over(action.id).wait().state == "done"
        assert self.letters() == {}
        assert before.keys() <= self.listed().keys()

    def _delete_dead(self) -> None:
        letters = self.queue.dead(3)
        with self._removing() as gone:
            assert self.queue.delete_dead(ids=[each.message_id for each in letters]) == len(letters)
        assert gone.keys() == {each.message_id for each in letters}

    def _purge(self) -> None:
        """All that waits or is delayed."""
        with self._removing() as gone:
            count = self.queue.purge()
        assert count == len(gone)

    def _purge_of(self) -> None:
        """All that one tenant has, its keys included."""
        name, cancels = self._rng.choice(KEYS), self._rng.random() < 0.4
        with self._removing() as gone:
            said = self.queue.purge(shard_key=name, in_flight=cancels)
        assert all(self._is_of(key, name) for key in gone.values())
        assert said.total + said.cancelled == len(gone)
        assert not (cancels and said.left_in_flight)
        self._first = {each: first for each, first in self._first.items() if not self._is_of(each[0], name)}

    def _delete(self) -> None:
        """Not while it holds anything."""
        if self.listed() or self.letters():
            with pytest.raises(QueueNotEmpty):
                self.queue.delete(expected=0)

    def _limit(self) -> None:
        name, limits = self._rng.choice(NAMES), self._rng.choice((Limits(), Limits(max_in_flight=2), "gold"))
        if not self._is_fair() or (limits == "gold" and "gold" not in self.queue.plans()):
            return
        self.queue.set_limits({name: limits})
        self._limits.pop(name, None)
        if limits != Limits():
            self._limits[name] = limits

    def _plan(self) -> None:
        """One is made or changed, or deleted if nobody is on it."""
        if "gold" in self.queue.plans() and "gold" not in self._limits.values() and self._rng.random() < 0.5:
            self.queue.delete_plan("gold")
            assert self.queue.plans() == {}
        else:
            self.queue.set_plan("gold", max_in_flight=self._rng.choice((1, 3)))
            assert self.queue.plans().keys() == {"gold"}

    def _weigh(self) -> None:
        name, weight = self._rng.choice(NAMES), self._rng.choice((1, 2, 5))
        found = self.queue.set_weights({name: weight})
        assert found.get(name, 1) == weight
        assert self.queue.weights() == found

    def _pause(self) -> None:
        name = self._rng.choice((*NAMES, None))
        if self._is_fair():
            self.queue.pause(name)
            self._paused.add(name)

    def _resume(self) -> None:
        name = self._rng.choice([*self._paused, None])
        self.queue.resume(name)
        self._paused.discard(name)

    def _assign(self) -> None:
        with suppress(ConfigError):  # there may be no room for so many shards that differ
            assert self._rng.choice(NAMES) in self.queue.assign(NAMES)

    def _unassign(self) -> None:
        assert not self.queue.unassign()

    def _schedule(self) -> None:
        """One is there for a moment, and called by hand."""
        queue, name = self.queue, self._rng.choice("rst")
        found = queue.schedules.add(name, "call", shard_key=self._rng.choice(KEYS), every=86_400, paused=True)
        assert [each.name for each in queue.schedules.list()] == [name] == [found.name]
        queue.schedules.resume(name)
        queue.schedules.pause(name)
        try:
            self.alive.add(queue.schedules.run(name))
        finally:  # there may be no room for it
            assert [queue.schedules.remove(name) for _ in range(2)] == [True, False]

    # --- looks

    def _look_at_messages(self) -> None:
        """What is listed is all that there is, and each of these has a state."""
        queue, seen = self.queue, self._world.census(self.queue)
        found, letters = self.listed(), self.letters()
        assert found.keys() == set(map(seen.id_of, seen.bodies - seen.cancelled))
        assert len(letters) == seen.dead
        assert found.keys() | letters.keys() >= self.alive
        for each in self._rng.sample(sorted(self.alive), min(3, len(self.alive))):
            assert (queue.status(each).state == "dead") == (each in letters)

    def _look_at_tenants(self) -> None:
        if not self._is_fair():
            return
        queue, stats = self.queue, self.queue.stats()
        found = queue.tenants(limit=1000)
        assert len({each.shard_key for each in found}) == len(found)
        for each in found:
            one = queue.tenant(each.shard_key)
            assert (one.backlog, one.delayed, one.in_flight) == (each.backlog, each.delayed, each.in_flight)
        assert sum(each.backlog for each in found) <= stats.backlog + stats.in_flight

    def _look_at_settings(self) -> None:
        """They are those that were made, whatever partitions there are by now."""
        queue = self.queue
        assert queue.declare() == queue.settings()
        assert queue.limits() == self._limits
        assert queue.paused().keys() == self._paused
        controls = queue.controls()
        assert {name: each.limits for name, each in controls.limits.items()} == self._limits
        assert controls.paused.keys() == self._paused
        assert queue.workers() == []

    def _look_at_numbers(self) -> None:
        queue, stats = self.queue, self.queue.stats()
        parts = queue.partitions()
        assert [each.number for each in parts] == [*range(len(parts))]
        for name in ("in_flight", "backlog", "delayed", "dead", "acked"):
            assert sum(getattr(each.stats, name) for each in parts) == getattr(stats, name), name
        assert queue.len() == stats.backlog + stats.in_flight
        assert queue.history() == []
        assert (queue.outlook().waits, queue.verdict().queue) == (stats.backlog + stats.delayed, queue.name)
        assert all(each.recent == sum(each.minutes) for each in queue.failures())

    def _look_at_journal(self) -> None:
        """It has told of each message that was written."""
        while True:
            page = self.queue.journal(1000, after=self._position)
            assert page.lost == 0
            self._told |= {each.message_id for each in page.events if each.kind == "written"}
            self._position = page.position
            if page.position == page.latest:
                break
        assert self.alive <= self._told
