"""A call of everything that programs can ask of a server by a queue, its client, deliveries, schedules and writers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from shardq import Limits, Message, Queue, Where

SETTINGS: Final[Mapping[str, Any]] = {
    "streams": 4, "streams_per_shard": 2, "window": 1, "result_ttl": 60.0, "journal": 1000, "total_in_flight": 1000,
    "max_schedules": 10,
}  # fmt: skip


def furnish(queue: Queue) -> None:
    """Give a queue with these settings what all calls need: messages in each state, and whatever else there can be."""
    queue.write("done", shard_key="a")
    queue.read().ack(result="done")
    queue.write_many([(number, tenant) for number in range(8) for tenant in ("dies", "a", "b", "c")])
    for each in queue.read_many(100):
        if each.shard_key == "dies" and each.payload < 3:
            each.reject("no")
        else:
            each.nack()
    queue.write_many([Message(number, "late", delay=0.5) for number in range(3)])
    queue.set_limits({"limited": Limits(max_in_flight=1)})
    queue.set_weights({"weighty": 3})
    queue.pause("paused")
    queue.set_plan("gold", max_in_flight=5)
    queue.set_plan("unused", max_in_flight=5)
    queue.assign(["assigned"])
    for name in ("often", "resting"):
        queue.schedules.add(name, "call", shard_key="a", every=60, paused=name == "resting")
    queue.client.bind_many([("topic", queue.name), ("topic", "gone")])
    queue.write_many([(number, tenant) for number in range(5) for tenant in ("paused", "limited", "weighty")])


def first_dead(queue: Queue) -> str:
    return queue.dead()[0].message_id


def any_id(queue: Queue) -> str:
    return queue.peek(1).messages[0].message_id


def stopped(queue: Queue) -> str:
    """An action that was stopped."""
    action = queue.redrive(Where(state="dead"))
    action.stop()
    action.wait()
    return action.id


def finished(queue: Queue) -> str:
    return next(each.message_id for each in queue.journal().events if each.kind == "acked")


def flush(queue: Queue) -> None:
    writer = queue.client.writer()
    writer.write(queue.name, "more", shard_key="a")
    writer.flush()


def close(queue: Queue) -> None:
    writer = queue.client.writer()
    writer.write(queue.name, "more", shard_key="a")
    writer.close()


VERBS: Final[Mapping[str, Callable[[Queue], object]]] = {
    "Action.status": lambda q: q.redrive(Where(tenant="nobody")).status(),
    "Action.stop": lambda q: q.redrive(Where(tenant="nobody")).stop(),
    "Action.wait, cancel": lambda q: q.cancel(Where(tenant="b", state="waiting")).wait(),
    "Action.wait, delete": lambda q: q.delete_dead(Where(state="dead")).wait(),
    "Action.wait, redrive": lambda q: q.redrive(Where(state="dead")).wait(),
    "Action.wait, retry": lambda q: q.retry_now(Where(state="retrying")).wait(),
    "Client.bind": lambda q: q.client.bind("other", q.name),
    "Client.bind_many": lambda q: q.client.bind_many([("other", q.name)]),
    "Client.bindings": lambda q: q.client.bindings(),
    "Client.publish": lambda q: q.client.publish("topic", "more", shard_key="a"),
    "Client.queues": lambda q: q.client.queues(),
    "Client.router": lambda q: q.client.router(),
    "Client.unbind": lambda q: q.client.unbind("topic", q.name),
    "Client.unbind_gone": lambda q: q.client.unbind_gone(),
    "Client.unbind_many": lambda q: q.client.unbind_many([("topic", q.name)]),
    "Client.workers": lambda q: q.client.workers(),
    "Delivery.ack": lambda q: q.read().ack(),
    "Delivery.ack, with a result": lambda q: q.read().ack(result="done"),
    "Delivery.extend": lambda q: q.read().extend(60),
    "Delivery.nack": lambda q: q.read().nack(error="again"),
    "Delivery.nack, with a delay": lambda q: q.read().nack(delay=5),
    "Delivery.progress": lambda q: q.read().progress(1, 2),
    "Delivery.reject": lambda q: q.read().reject("no"),
    "Queue.ack_many": lambda q: q.ack_many(q.read_many(10)),
    "Queue.actions": lambda q: q.actions(),
    "Queue.assign": lambda q: q.assign(["more"]),
    "Queue.assignment": lambda q: q.assignment(),
    "Queue.cancel": lambda q: q.cancel(any_id(q)),
    "Queue.cancel, by a filter": lambda q: q.cancel(Where(tenant="b")),
    "Queue.configure, lifting": lambda q: q.configure(total_in_flight=0),
    "Queue.configure, another lease": lambda q: q.configure(visibility_timeout=5),
    "Queue.controls": lambda q: q.controls(),
    "Queue.dead": lambda q: q.dead(),
    "Queue.declare": lambda q: q.declare(),
    "Queue.delete": lambda q: q.delete(expected=None),
    "Queue.delete_dead": lambda q: q.delete_dead(q.dead()),
    "Queue.delete_dead, by a filter": lambda q: q.delete_dead(Where(state="dead")),
    "Queue.delete_dead, by id": lambda q: q.delete_dead(ids=[first_dead(q)]),
    "Queue.delete_plan": lambda q: q.delete_plan("unused"),
    "Queue.failures": lambda q: q.failures(),
    "Queue.history": lambda q: q.history(),
    "Queue.journal": lambda q: q.journal(),
    "Queue.len": lambda q: q.len(),
    "Queue.limits": lambda q: q.limits(),
    "Queue.nack_many": lambda q: q.nack_many(q.read_many(10), error="again"),
    "Queue.outlook": lambda q: q.outlook(),
    "Queue.pause": lambda q: q.pause("a"),
    "Queue.partitions": lambda q: q.partitions(),
    "Queue.pause, with an end": lambda q: q.pause("a", seconds=600),
    "Queue.pause, the queue": lambda q: q.pause(),
    "Queue.paused": lambda q: q.paused(),
    "Queue.peek": lambda q: q.peek(),
    "Queue.plans": lambda q: q.plans(),
    "Queue.purge": lambda q: q.purge(),
    "Queue.purge, of one": lambda q: q.purge(shard_key="a"),
    "Queue.read": lambda q: q.read(),
    "Queue.read_many": lambda q: q.read_many(10),
    "Queue.redrive": lambda q: q.redrive(q.dead()),
    "Queue.redrive, by a filter": lambda q: q.redrive(Where(state="dead")),
    "Queue.reject_many": lambda q: q.reject_many(q.read_many(10), "no"),
    "Queue.resize": lambda q: q.resize(8),
    "Queue.result": lambda q: q.result(finished(q)),
    "Queue.resume": lambda q: q.resume("paused"),
    "Queue.resume, the queue": lambda q: q.resume(),
    "Queue.retry_now": lambda q: q.retry_now(Where(state="retrying")),
    "Queue.set_limits, lifting": lambda q: q.set_limits({"limited": Limits()}),
    "Queue.set_limits, with an end": lambda q: q.set_limits({"limited": Limits(rate=5)}, seconds=600),
    "Queue.set_plan": lambda q: q.set_plan("gold", max_in_flight=1),
    "Queue.set_weights, lifting": lambda q: q.set_weights({"weighty": 1}),
    "Queue.set_weights, with an end": lambda q: q.set_weights({"weighty": 5}, seconds=600),
    "Queue.settings": lambda q: q.settings(),
    "Queue.stats": lambda q: q.stats(),
    "Queue.status": lambda q: q.status(any_id(q)),
    "Queue.stop_action": lambda q: q.stop_action(q.redrive(Where(state="dead")).id),
    "Queue.take_over": lambda q: q.take_over(stopped(q)),
    "Queue.tenant": lambda q: q.tenant("a"),
    "Queue.tenants": lambda q: q.tenants(),
    "Queue.verdict": lambda q: q.verdict(),
    "Queue.unassign": lambda q: q.unassign(["assigned"]),
    "Queue.weights": lambda q: q.weights(),
    "Queue.workers": lambda q: q.workers(),
    "Queue.write": lambda q: q.write("more", shard_key="a"),
    "Queue.write, delayed": lambda q: q.write("more", shard_key="a", delay=60),
    "Queue.write, unique": lambda q: q.write("more", shard_key="a", unique_key="k"),
    "Queue.write, with a dedup key": lambda q: q.write("more", shard_key="a", dedup_key="k"),
    "Queue.write_many": lambda q: q.write_many([("more", "a")] * 3),
    "Schedules.add": lambda q: q.schedules.add("new", "call", shard_key="a", every=60),
    "Schedules.list": lambda q: q.schedules.list(),
    "Schedules.pause": lambda q: q.schedules.pause("often"),
    "Schedules.remove": lambda q: q.schedules.remove("often"),
    "Schedules.resume": lambda q: q.schedules.resume("resting"),
    "Schedules.run": lambda q: q.schedules.run("often"),
    "Writer.close": close,
    "Writer.flush": flush,
    "Writer.write": lambda q: q.client.writer().write(q.name, "more", shard_key="a").result(),
}

APART: Final = {
    "Job.cancel": "it is Queue.cancel",
    "Job.result": "it is Queue.result",
    "Job.status": "it is Queue.status",
}
"""What calls nothing but another call."""

LOOKS: Final = (
    "Client.bindings", "Client.queues", "Client.router", "Client.workers", "Queue.actions", "Queue.assignment",
    "Queue.controls", "Queue.dead", "Queue.failures", "Queue.history", "Queue.journal", "Queue.len", "Queue.limits",
    "Queue.outlook", "Queue.partitions", "Queue.paused", "Queue.peek", "Queue.plans", "Queue.settings", "Queue.stats",
    "Queue.status", "Queue.tenant", "Queue.tenants", "Queue.verdict", "Queue.weights", "Queue.workers",
    "Schedules.list",
)  # fmt: skip
"""Those that change nothing."""
