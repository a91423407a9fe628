"""What a script touches does not grow with what the queue holds: none looks at a whole index, however large it is.

Each index gets few members, and then four times as many, both more than a piece of an index. The commands of each call
are watched: none asks for all members of something large, and those of one script together do not touch as much
more as there are more members. Nothing is measured by time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from shardq import Delivery, Limits, Message, Queue, Where
from shardq.ops.inspect.tenants import Order
from shardq.ops.read.give_back import unread
from tests.conformance.partitions.differences import PARTITIONS
from tests.conformance.world import World, raw_client
from tests.promises.conftest import OpenQueue, lone
from tests.promises.watching import touched, unbounded, watched
from tests.servers import Server
from tests.surface import calls, differences, not_called
from tests.waiting import eventually

pytestmark = pytest.mark.runs_in("test-all")
EACH = PARTITIONS or 1
FEW, MANY = 800 * EACH, 3_200 * EACH
"""Members of an index; of each partition's, where there are some."""
BATCH = 100
MORE = 2.0
"""How much more a script may touch beside many members, by chance: a piece of a scan has more of them."""
BESIDE = 250
"""And so many keys, members and fields more: one write in 32 asks for what has ended of three indexes."""


@dataclass
class Filling:
    """Fills one index of a queue."""

    queue: Queue
    world: World
    count: int

    def write(self, messages: Sequence[Message]) -> None:
        for start in range(0, len(messages), 1000):
            self.queue.write_many(messages[start : start + 1000])

    def each(self, **settings: float) -> list[Message]:
        """A message of each of so many tenants."""
        return [Message(b"", f"t{number}", **settings) for number in range(self.count)]  # type: ignore[arg-type]

    def read(self) -> Iterator[list[Delivery]]:
        """Read one message for each member."""
        found = 0
        while found < self.count:
            some = self.queue.read_many(min(1000, self.count - found))
            assert some
            found += len(some)
            yield some

    def take(self) -> None:
        """Have one in flight for each member."""
        for _ in self.read():
            pass

    def after(self, seconds: float) -> None:
        """Wait until so much time has passed for the server."""
        now = self.queue.stats().time
        eventually(lambda: self.queue.stats().time > now + seconds, 120, every=0.05, what="so much time")


def limited(fill: Filling) -> None:
    """Tenants whose next token is there, while the queue has all in flight that it may have."""
    limited_below_the_cap(fill)
    fill.queue.configure(total_in_flight=1)


def limited_below_the_cap(fill: Filling) -> None:
    """Tenants with a token due, and the queue may deliver."""
    fill.queue.configure(rate=0.5, burst=1)
    fill.write(fill.each())
    fill.write(fill.each())
    fill.take()
    fill.after(2.5)


def in_flight(fill: Filling) -> None:
    fill.write(fill.each())
    fill.take()


def leases_over(fill: Filling) -> None:
    """Leases that ended together."""
    in_flight(fill)
    fill.world.elapse(fill.queue, 601)


def delayed(fill: Filling) -> None:
    fill.write(fill.each(delay=600))


def delayed_together(fill: Filling) -> None:
    """Of one tenant, to the same moment."""
    fill.write([Message(b"", "t7", delay=600) for _ in range(fill.count)])


def due(fill: Filling) -> None:
    """Delays that are over."""
    delayed(fill)
    fill.world.elapse(fill.queue, 601)


def dead(fill: Filling) -> None:
    fill.write(fill.each())
    for found in fill.read():
        assert fill.queue.reject_many(found, "no") == []


def paused(fill: Filling) -> None:
    """Tenants that are paused."""
    for number in range(fill.count):
        fill.queue.pause(f"t{number}")
    fill.write(fill.each())


def pauses_over(fill: Filling) -> None:
    """Pauses that ended by themselves; messages waited for the end of each."""
    fill.write(fill.each())
    for number in range(fill.count):
        fill.queue.pause(f"t{number}", seconds=1)
    fill.after(1.5)


def own_limits(fill: Filling) -> None:
    names = [f"t{number}" for number in range(fill.count)]
    fill.queue.set_limits({name: Limits(max_in_flight=1, rate=0.001, burst=1) for name in names})
    fill.write(fill.each())
    fill.write(fill.each())
    fill.take()


def idle(fill: Filling) -> None:
    """Tenants that had something a moment ago, while others waited."""
    fill.queue.pause("other")
    fill.write([Message(b"", "other")] * 1001)
    fill.write(fill.each())
    for found in fill.read():
        assert fill.queue.ack_many(found) == []


def unique(fill: Filling) -> None:
    fill.write([Message(b"", f"t{number}", unique_key=f"k{number}") for number in range(fill.count)])


def waiting(fill: Filling) -> None:
    """Tenants that each have more than their window."""
    fill.write(fill.each())
    fill.write(fill.each())


def flood(fill: Filling) -> None:
    """One tenant with all."""
    fill.write([Message(b"x" * 200, "t7")] * fill.count)


def cancelled(fill: Filling) -> None:
    """One tenant, of whose messages all but the first and the last were cancelled."""
    fill.write([Message(b"x" * 200, "t7")] * 20)
    ids = fill.queue.write_many([Message(b"x" * 200, "t7")] * fill.count)
    for each in ids[:-1]:
        fill.queue.cancel(str(each))


def children(fill: Filling) -> None:
    """Children of one parent."""
    fill.queue.configure(parents=1)
    fill.write([Message(b"", f"t7/{number}") for number in range(fill.count)])


def settings_changed(fill: Filling) -> None:
    """All accounts are to be looked at."""
    waiting(fill)
    fill.queue.configure(max_in_flight=5)


INDEXES: dict[str, Callable[[Filling], None]] = {
    each.__name__: each
    for each in (
        limited, limited_below_the_cap, in_flight, leases_over, delayed, delayed_together, due, dead, paused,
        pauses_over, own_limits, idle, unique, waiting, flood, cancelled, children, settings_changed,
    )
}  # fmt: skip


@dataclass
class Seen:
    """What scripts of calls have touched, by name, and those that looked at all of something."""

    server: Server
    amounts: dict[str, float] = field(default_factory=dict)
    looked_at_all: list[str] = field(default_factory=list)

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Watch one call."""
        with watched(self.server) as commands:
            yield
        self.amounts[name] = touched(self.server, commands)
        self.looked_at_all += [f"{name}: {each}" for each in unbounded(self.server, commands)]


def make_calls(queue: Queue, seen: Seen) -> None:
    """Make each kind of call."""
    messages = [Message(b"", f"t{number}") for number in range(BATCH)]
    held: list[Delivery] = []
    ids: Sequence[Any] = []
    for name, look in AT_FIRST.items():
        with seen.call(name):
            look(queue)
    with seen.call("Queue.read"):
        held += queue.read_many(1)
    with seen.call("Queue.read_many"):
        held += queue.read_many(BATCH)
    with seen.call("Queue.write"):
        queue.write(b"", shard_key="other")
    with seen.call("Queue.write_many"):
        ids = queue.write_many(messages)
    with seen.call("Queue.write_many, delayed"):
        queue.write_many([Message(b"", f"t{number}", delay=600) for number in range(BATCH)])
    with seen.call("Queue.write_many, unique"):
        queue.write_many([Message(b"", f"t{number}", unique_key=f"u{number}") for number in range(BATCH)])
    with seen.call("Queue.status"):
        queue.status(str(ids[-1]))
    with seen.call("Queue.cancel"):
        queue.cancel(str(ids[-1]))
    for name, settle in OF_A_DELIVERY.items():
        with seen.call(name):
            for each in held[:1]:
                settle(each)
        held = held[1:]
    with seen.call("Queue.nack_many"):
        queue.nack_many(held)
    with seen.call("Queue.ack_many"):
        queue.ack_many(queue.read_many(BATCH))
    with seen.call("Queue.reject_many"):
        queue.reject_many(queue.read_many(BATCH), "no")
    with seen.call("Queue.redrive"):
        queue.redrive(queue.dead(BATCH))
    for state in ("waiting", "held_back", "delayed", "in_flight"):
        with seen.call(f"Queue.peek, {state}"):
            queue.peek(10, state=state)
    for name, change in AT_LAST.items():
        with seen.call(name):
            change(queue)


def taken_over(queue: Queue) -> None:
    """An action that was stopped."""
    queue.write(b"", shard_key="stopped", delay=600)
    stopped = queue.cancel(Where(tenant="stopped", state="delayed"))
    stopped.stop()
    stopped.wait()
    action = queue.take_over(stopped.id)
    action.stop()
    action.wait()


AT_FIRST: dict[str, Callable[[Queue], object]] = {
    "Queue.len": lambda queue: queue.len(),
    "Queue.stats": lambda queue: queue.stats(),
    "Queue.tenant": lambda queue: queue.tenant("t7"),
    "Queue.outlook": lambda queue: queue.outlook(),
    "Queue.verdict": lambda queue: queue.verdict(),
}
OF_A_DELIVERY: dict[str, Callable[[Delivery], object]] = {
    "Delivery.extend": lambda delivery: delivery.extend(600),
    "Delivery.progress": lambda delivery: delivery.progress(1, 2),
    "Delivery.ack": lambda delivery: delivery.ack(),
    "Delivery.nack": lambda delivery: delivery.nack(),
    "Delivery.reject": lambda delivery: delivery.reject("no"),
}
AT_LAST: dict[str, Callable[[Queue], object]] = {
    "Queue.pause": lambda queue: queue.pause("another", seconds=1),
    "Queue.resume": lambda queue: queue.resume("another"),
    "Queue.configure": lambda queue: queue.configure(max_deliveries=9),
    "Queue.assign": lambda queue: queue.assign(["assigned"]),
    "Queue.assignment": lambda queue: queue.assignment(),
    "Queue.unassign": lambda queue: queue.unassign(["assigned"]),
    "Queue.set_limits": lambda queue: queue.set_limits({"another": Limits(rate=5)}),
    "Queue.controls": lambda queue: queue.controls(),
    "Queue.limits": lambda queue: queue.limits(),
    "Queue.partitions": lambda queue: queue.partitions(),
    "Queue.paused": lambda queue: queue.paused(),
    "Queue.set_weights": lambda queue: queue.set_weights({"another": 2}),
    "Queue.weights": lambda queue: queue.weights(),
    "Queue.set_plan": lambda queue: queue.set_plan("gold", rate=5),
    "Queue.plans": lambda queue: queue.plans(),
    "Queue.delete_plan": lambda queue: queue.delete_plan("gold"),
    "Queue.settings": lambda queue: queue.settings(),
    "Queue.dead": lambda queue: queue.dead(),
    "Queue.delete_dead": lambda queue: queue.delete_dead(queue.dead()),
    "Queue.tenants": lambda queue: queue.tenants(),
    "Queue.workers": lambda queue: queue.workers(),
    "Queue.history": lambda queue: queue.history(480),
    "Queue.declare": lambda queue: queue.declare(),
    "Queue.failures": lambda queue: queue.failures(),
    "Queue.journal": lambda queue: queue.journal(),
    "Queue.resize": lambda queue: queue.resize(80),
    "Queue.actions": lambda queue: queue.actions(),
    "Queue.redrive, by a filter": lambda queue: queue.redrive(Where(state="dead")).wait(),
    "Queue.retry_now": lambda queue: queue.retry_now(Where(state="retrying")).wait(),
    "Queue.stop_action": lambda queue: queue.stop_action(queue.actions()[0].id),
    "Queue.take_over": taken_over,
    "Queue.purge, of one": lambda queue: queue.purge(shard_key="another"),
    "Queue.purge": lambda queue: queue.purge(),
}
APART = {
    "Queue.delete": "it removes whole keys",
    "Queue.result": "a queue keeps no results unless it is told to",
}


def test_each_call_of_a_queue_is_watched() -> None:
    assert not_called(AT_FIRST | OF_A_DELIVERY | AT_LAST) == []


@lone
@pytest.mark.parametrize("index", INDEXES)
def test_no_script_touches_more_beside_more_members_of_an_index(
    open_queue: OpenQueue, server: Server, index: str
) -> None:
    found: list[Seen] = []
    for count in (FEW, MANY):
        queue = open_queue(streams=64, streams_per_shard=4, window=1, max_dead=10**6, visibility_timeout=600)
        with raw_client(server.url) as raw:
            INDEXES[index](Filling(queue, World(server.url, raw), count))
        found.append(seen := Seen(server))
        make_calls(queue, seen)
        queue.delete(expected=None)
    few, many = found
    assert differences(few.amounts, calls(Queue, Delivery), APART) == []
    more = {name: (few.amounts[name], amount) for name, amount in many.amounts.items()
            if amount > MORE * few.amounts[name] + BESIDE}  # fmt: skip
    assert (few.looked_at_all, many.looked_at_all, more) == ([], [], {})


def give_back(queue: Queue, held: list[Delivery]) -> None:
    """As a reader does that has read ahead, and leaves."""
    queue._client.run(unread(queue.state, [each.received for each in held], 60))


OF_MANY: dict[str, Callable[[Queue, list[Delivery]], object]] = {
    "nack_many": lambda queue, held: queue.nack_many(held),
    "reject_many": lambda queue, held: queue.reject_many(held, "no"),
    "give back unread": give_back,
    "set_weights": lambda queue, held: queue.set_weights({str(each.shard_key): 3 for each in held}),
    "purge": lambda queue, _: queue.purge(),
}
MOST = 3_500
"""Keys, members and fields that one script may touch, each of which takes it about a microsecond."""


@lone
@pytest.mark.parametrize("name", OF_MANY)
def test_a_call_for_many_is_made_in_parts(open_queue: OpenQueue, server: Server, name: str) -> None:
    queue = open_queue(streams=64, streams_per_shard=4, window=1, max_dead=10**6, visibility_timeout=600)
    queue.write_many([Message(b"", f"t{number}") for number in range(2000)])
    held = queue.read_many(1000)
    with watched(server) as commands:
        OF_MANY[name](queue, held)
    assert touched(server, commands) <= MOST


@lone
@pytest.mark.parametrize("order", ["backlog", "oldest", "in_flight", "held_back", "time", "dedup", "dead", "results"])
def test_a_list_of_tenants_runs_scripts_for_those_that_it_shows(
    open_queue: OpenQueue, server: Server, monkeypatch: pytest.MonkeyPatch, order: Order
) -> None:
    """And one for each thousand accounts: a script that looks closely at one of them costs as much as eight there."""
    monkeypatch.setattr("shardq.ops.inspect.tenants.FEW_MESSAGES", MANY // 2)
    queue = open_queue(streams=4, streams_per_shard=2, window=1)
    queue.write_many([Message(b"", f"t{number % MANY}") for number in range(4 * MANY)])
    with watched(server) as commands:
        assert len(queue.tenants(order, limit=5)) in (0, 5)
    pages = 4 if order == "oldest" else MANY // 1000 + 1
    assert sum(each.name.startswith("FCALL") for each in commands) <= (5 + pages) * EACH
