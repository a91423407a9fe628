"""All public methods that ask Redis for something: how each is called, and what a caller is told who gets no answer.

`verbs` are those that do what is asked. `silent` is the error if none of them answers until the deadline, `deaf` if
nothing does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from shardq import (
    Action,
    BackendTimeout,
    Client,
    DeadLetter,
    Delivery,
    Limits,
    Message,
    OutcomeUnknown,
    PartlyPublished,
    PartlyWritten,
    Queue,
    Where,
)
from shardq.client.job import Job
from shardq.tasks import Tasks

SETTINGS: dict[str, Any] = {
    "streams": 4, "streams_per_shard": 2, "max_deliveries": 3, "max_dead": 100, "result_ttl": 60, "journal": 1000,
    "max_schedules": 10,
}  # fmt: skip
tasks = Tasks("told")


@tasks.task
def work(number: int) -> int:
    """A task whose calls are written."""
    return number


@dataclass(frozen=True)
class Place:
    """A queue through a proxy, the same queue through a `good` connection, and a router of its own."""

    queue: Queue
    good: Queue
    router: str

    @property
    def client(self) -> Client:
        """The client behind the proxy."""
        return self.queue.client

    def write(self, count: int = 1, **options: Any) -> list[str]:
        """So many messages, of one tenant."""
        return [str(self.good.write(number, shard_key="t", **options)) for number in range(count)]

    def take(self, count: int = 1) -> list[Delivery]:
        """So many messages in the hands of the client behind the proxy."""
        self.write(count)
        return self.queue.read_many(count, block=15)

    def bury(self, count: int = 3) -> list[DeadLetter]:
        """So many dead letters."""
        self.write(count)
        self.good.reject_many(self.good.read_many(count), "poison")
        return self.good.dead(count)

    def done(self) -> str:
        """A message that was acked with a result."""
        (message_id,) = self.write()
        self.good.read().ack(result=7)
        return message_id

    def job(self, message_id: str) -> Job[Any]:
        """The job with this id."""
        return self.queue.job(work, message_id)


@dataclass(frozen=True)
class Row:
    """One method, in one case. `call` gets what `given` has prepared."""

    method: str
    verbs: str
    call: Callable[[Place, Any], Any]
    given: Callable[[Place], Any] = lambda place: None
    case: str = ""
    silent: type[Exception] = OutcomeUnknown
    deaf: type[Exception] = OutcomeUnknown

    def __str__(self) -> str:
        return f"{self.method}, {self.case}" if self.case else self.method


def look(
    method: str,
    verbs: str,
    call: Callable[[Place, Any], Any],
    given: Callable[[Place], Any] = lambda place: None,
    case: str = "",
) -> Row:
    """A method that only looks."""
    return Row(method, verbs, call, given, case, silent=BackendTimeout, deaf=BackendTimeout)


def change(
    method: str, verbs: str, call: Callable[[Place, Any], Any], given: Callable[[Place], Any] = lambda place: None
) -> Row:
    """A method that looks the queue up before it changes it: while nothing answers, nothing of it was sent."""
    return Row(method, verbs, call, given, deaf=BackendTimeout)


def bound(place: Place) -> None:
    """One binding, and one to a queue that is gone."""
    place.good.client.bind_many([("a.*", place.good.name), ("b.*", f"{place.good.name}.gone")], router=place.router)


def scheduled(place: Place) -> None:
    """One stored schedule."""
    place.good.schedules.add("daily", b"x", shard_key="t", cron="0 3 * * *")


def planned(place: Place) -> None:
    """One plan."""
    place.good.set_plan("gold", rate=5)


def begun(place: Place) -> Action:
    """An action that acts on three dead letters."""
    place.bury()
    return place.good.redrive(Where(state="dead"))


def stopped(place: Place) -> str:
    """The id of one that was stopped."""
    action = begun(place)
    action.stop()
    action.wait()
    return action.id


def working(place: Place, action: Action) -> Action:
    """The same in the hands of the client behind the proxy."""
    return Action(place.client, replace(action._running, state=place.queue.state))


PAIRS = [("a.*", "here"), ("c.*", "here")]

ROWS = (
    Row("Queue.write", "write", lambda p, _: p.queue.write(1, shard_key="t")),
    Row(
        "Queue.write", "write", lambda p, _: p.queue.write(1, shard_key="t", dedup_key="k"),
        lambda p: p.write(dedup_key="k"), "known",
    ),
    Row(
        "Queue.write", "write replace",
        lambda p, _: p.queue.write(1, shard_key="t", unique_key="k", on_conflict="replace"),
        lambda p: p.write(unique_key="k"), "replacing",
    ),
    Row(
        "Queue.write", "write", lambda p, _: p.queue.write(1, shard_key="t", unique_key="k", on_conflict="raise"),
        lambda p: p.write(unique_key="k"), "in conflict",
    ),
    Row(
        "Queue.write_many", "write", lambda p, _: p.queue.write_many([Message(1, "t"), Message(2, "u")]),
        silent=PartlyWritten, deaf=PartlyWritten,
    ),
    Row("Queue.read", "read", lambda p, _: p.queue.read(), lambda p: p.write(), silent=BackendTimeout),
    Row("Queue.read", "read", lambda p, _: p.queue.read(), case="empty", silent=BackendTimeout),
    Row(
        "Queue.read", "ack", lambda p, given: p.queue.read(ack=given), lambda p: (p.take(), p.write())[0],
        "with an ack",
    ),
    Row("Queue.read_many", "read", lambda p, _: p.queue.read_many(3), lambda p: p.write(3), silent=BackendTimeout),
    Row("Queue.ack_many", "ack", lambda p, given: p.queue.ack_many(given), lambda p: p.take(3)),
    Row("Queue.ack_many", "keep ack", lambda p, given: p.queue.ack_many(given, results=[1, 2, 3]),
        lambda p: p.take(3), "with results"),
    Row("Queue.nack_many", "nack", lambda p, given: p.queue.nack_many(given), lambda p: p.take(3)),
    Row("Queue.reject_many", "nack", lambda p, given: p.queue.reject_many(given, "poison"), lambda p: p.take(3)),
    Row("Queue.cancel", "cancel", lambda p, given: p.queue.cancel(*given), lambda p: p.write(), "waiting"),
    Row("Queue.cancel", "cancel", lambda p, given: p.queue.cancel(given[0].message_id), lambda p: p.take(),
        "in flight"),
    Row("Queue.cancel", "cancel", lambda p, given: p.queue.cancel(given), lambda p: p.done(), "over"),
    look("Queue.result", "await", lambda p, given: p.queue.result(given, timeout=0), lambda p: p.done(), "done"),
    look("Queue.result", "await", lambda p, given: p.queue.result(*given, timeout=0), lambda p: p.write(), "pending"),
    look("Queue.status", "status", lambda p, given: p.queue.status(*given), lambda p: p.write()),
    look("Queue.peek", "peek", lambda p, _: p.queue.peek(), lambda p: p.write(3)),
    look("Queue.len", "len", lambda p, _: p.queue.len(), lambda p: p.write(3)),
    look("Queue.stats", "stats", lambda p, _: p.queue.stats(), lambda p: p.write(3)),
    look(
        "Queue.partitions", "stats", lambda p, _: [each.stats and each.stats.backlog for each in p.queue.partitions()],
        lambda p: p.write(3),
    ),
    look("Queue.dead", "dead", lambda p, _: p.queue.dead(), lambda p: p.bury()),
    look("Queue.failures", "failures", lambda p, _: len(p.queue.failures()), lambda p: p.bury()),
    look("Queue.journal", "journal", lambda p, _: p.queue.journal(), lambda p: p.write(3)),
    look("Queue.settings", "facts", lambda p, _: p.queue.settings()),
    look("Queue.weights", "weights", lambda p, _: p.queue.weights(), lambda p: p.good.set_weights({"t": 3})),
    look("Queue.limits", "limits", lambda p, _: p.queue.limits(), lambda p: p.good.set_limits({"t": Limits(rate=5)})),
    look("Queue.plans", "plans", lambda p, _: p.queue.plans(), planned),
    look("Queue.controls", "limits", lambda p, _: p.queue.controls(), lambda p: p.good.pause("t")),
    look("Queue.paused", "limits", lambda p, _: p.queue.paused(), lambda p: p.good.pause("t")),
    look("Queue.tenants", "tenant", lambda p, _: p.queue.tenants(), lambda p: p.write(3)),
    look("Queue.workers", "workers", lambda p, _: p.queue.workers(), lambda p: p.write(3)),
    look("Queue.history", "history", lambda p, _: p.queue.history(), lambda p: p.write(3)),
    look("Queue.tenant", "tenant", lambda p, _: p.queue.tenant("t"), lambda p: p.write(3)),
    look("Queue.outlook", "outlook", lambda p, _: p.queue.outlook(), lambda p: p.write(3)),
    look("Queue.verdict", "outlook", lambda p, _: p.queue.verdict(), lambda p: p.write(3)),
    look("Queue.assignment", "assignment", lambda p, _: p.queue.assignment(), lambda p: p.good.assign(["t"])),
    change("Queue.purge", "purge", lambda p, _: p.queue.purge(), lambda p: p.write(3)),
    Row("Queue.purge", "purge_of", lambda p, _: p.queue.purge(shard_key="t"), lambda p: p.write(3), "of one",
        deaf=BackendTimeout),
    look("Queue.actions", "actions", lambda p, _: p.queue.actions()),
    change("Queue.retry_now", "steer", lambda p, _: p.queue.retry_now(Where(state="retrying"))),
    Row("Queue.stop_action", "steer", lambda p, given: p.queue.stop_action(given.id), begun),
    change("Queue.take_over", "steer", lambda p, given: p.queue.take_over(given), stopped),
    change("Action.wait", "act", lambda p, given: working(p, given).wait(), begun),
    look("Action.status", "actions", lambda p, given: working(p, given).status(), begun),
    Row("Action.stop", "steer", lambda p, given: working(p, given).stop(), begun),
    change("Queue.delete", "delete", lambda p, _: p.queue.delete()),
    change("Queue.resize", "resize", lambda p, _: p.queue.resize(7)),
    change("Queue.assign", "assign", lambda p, _: p.queue.assign(["t", "u"])),
    change("Queue.unassign", "assign", lambda p, _: p.queue.unassign(["t"]), lambda p: p.good.assign(["t", "u"])),
    Row("Queue.declare", "open", lambda p, _: p.queue.declare()),
    change("Queue.configure", "configure", lambda p, _: p.queue.configure(max_deliveries=9)),
    change("Queue.set_weights", "weigh", lambda p, _: p.queue.set_weights({"t": 3})),
    change("Queue.set_limits", "limit", lambda p, _: p.queue.set_limits({"t": Limits(rate=5)})),
    change("Queue.set_plan", "plan", lambda p, _: p.queue.set_plan("gold", rate=5)),
    change("Queue.delete_plan", "plan", lambda p, _: p.queue.delete_plan("gold"), planned),
    change("Queue.pause", "pause", lambda p, _: p.queue.pause()),
    change("Queue.resume", "limit", lambda p, _: p.queue.resume("t"), lambda p: p.good.pause("t")),
    change("Queue.delete_dead", "delete_dead", lambda p, given: p.queue.delete_dead(given), lambda p: p.bury()),
    change("Queue.redrive", "redrive", lambda p, given: p.queue.redrive(given), lambda p: p.bury()),
    look("Client.queues", "queues", lambda p, _: p.good.name in p.client.queues()),
    look("Client.workers", "queues", lambda p, _: p.client.workers() == [] and p.good.name),
    look("Client.bindings", "follow", lambda p, _: p.client.bindings(router=p.router), bound),
    look("Client.router", "follow", lambda p, _: p.client.router(p.router), bound),
    Row("Client.bind", "bind", lambda p, _: p.client.bind("c.*", p.queue, router=p.router), bound, "new"),
    Row("Client.bind", "bind", lambda p, _: p.client.bind("a.*", p.queue, router=p.router), bound, "known"),
    Row("Client.unbind", "bind", lambda p, _: p.client.unbind("a.*", p.queue, router=p.router), bound, "known"),
    Row("Client.unbind", "bind", lambda p, _: p.client.unbind("c.*", p.queue, router=p.router), bound, "unknown"),
    Row("Client.bind_many", "bind", lambda p, _: p.client.bind_many(
        [(pattern, p.queue) for pattern, _ in PAIRS], router=p.router), bound),
    Row("Client.unbind_many", "bind", lambda p, _: p.client.unbind_many(
        [(pattern, p.queue) for pattern, _ in PAIRS], router=p.router), bound),
    change("Client.unbind_gone", "bind", lambda p, _: p.client.unbind_gone(router=p.router), bound),
    Row(
        "Client.publish", "write", lambda p, _: p.client.publish("a.b", b"x", shard_key="t", router=p.router), bound,
        silent=PartlyPublished, deaf=BackendTimeout,
    ),
    Row("Schedules.add", "store_schedule", lambda p, _: p.queue.schedules.add("b", b"x", shard_key="t", every=600)),
    Row("Schedules.pause", "pause_schedule", lambda p, _: p.queue.schedules.pause("daily"), scheduled),
    Row("Schedules.resume", "pause_schedule", lambda p, _: p.queue.schedules.resume("daily"), scheduled),
    Row("Schedules.remove", "remove_schedule", lambda p, _: p.queue.schedules.remove("daily"), scheduled),
    change("Schedules.run", "write", lambda p, _: p.queue.schedules.run("daily"), scheduled),
    look("Schedules.list", "schedules", lambda p, _: p.queue.schedules.list(), scheduled),
    Row("Delivery.ack", "ack", lambda p, given: given[0].ack(), lambda p: p.take()),
    Row("Delivery.ack", "keep ack", lambda p, given: given[0].ack(result=7), lambda p: p.take(), "with a result"),
    Row("Delivery.nack", "nack", lambda p, given: given[0].nack(), lambda p: p.take()),
    Row("Delivery.reject", "nack", lambda p, given: given[0].reject("poison"), lambda p: p.take()),
    Row("Delivery.extend", "extend", lambda p, given: given[0].extend(60), lambda p: p.take()),
    Row("Delivery.progress", "progress", lambda p, given: given[0].progress(1, 2), lambda p: p.take()),
    look("Job.result", "await", lambda p, given: p.job(given).result(timeout=0), lambda p: p.done()),
    look("Job.status", "status", lambda p, given: p.job(given).status(), lambda p: p.done()),
    Row("Job.cancel", "cancel", lambda p, given: p.job(*given).cancel(), lambda p: p.write()),
    Row("Writer.write", "write", lambda p, _: p.client.writer().write(p.queue, 1, shard_key="t").result(60)),
    Row("Writer.flush", "write", lambda p, _: flushed(p, "flush"), silent=PartlyWritten, deaf=PartlyWritten),
    Row("Writer.close", "write", lambda p, _: flushed(p, "close"), silent=PartlyWritten, deaf=PartlyWritten),
)  # fmt: skip


def flushed(place: Place, how: str) -> None:
    """Write by a writer whose futures nobody asks."""
    writer = place.client.writer()
    writer.write(place.queue, 1, shard_key="t")
    getattr(writer, how)()
