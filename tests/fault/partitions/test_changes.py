"""A change that fails in one partition is made in the others, says so, and can be made again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from shardq import Client, Limits, PartlyDone, Queue, ShardqError
from shardq.ops.operate import controls, queues
from shardq.ops.queue.sight import sight
from shardq.ops.write.outgoing import compose
from shardq.ops.write.write import write_many
from shardq.partitions.homes import home
from shardq.tasks import Tasks
from tests.servers import Server

PARTITIONS: Final = 3
TENANTS: Final = {home(f"tenant-{number}", PARTITIONS): f"tenant-{number}" for number in range(20)}
USER: Final = "halted"
tasks = Tasks("changes")


@tasks.task
def nightly() -> None:
    """A task that is scheduled."""


@pytest.fixture
def owned(server: Server) -> Iterator[Queue]:
    """A queue with partitions, of a user who may do all."""
    with Client.from_url(server.url) as client:
        settings: dict[str, Any] = {"partitions": PARTITIONS, "streams": 4, "streams_per_shard": 2, "max_schedules": 9}
        queue = client.queue("jobs", **settings)
        queue.declare()
        yield queue


@pytest.fixture
def queue(server: Server, owned: Any) -> Iterator[Queue]:
    """The same of a user whom partition 1 refuses, until `let_in`."""
    parts = owned.state.parts.states
    may = [f"~shardq:{{{each.keys.tag}}}*" for each in parts if each.number != 1]
    server.run("ACL", "SETUSER", USER, "on", ">secret", "resetkeys", *may, "~shardq:queues*", "&*", "+@all")
    assert server.url.startswith("unix://")
    with Client.from_url(server.url.replace("unix://", f"unix://{USER}:secret@")) as client:
        yield client.queue("jobs", create=False)
    server.run("ACL", "DELUSER", USER)


def let_in(server: Server) -> None:
    """Let the user change partition 1, too."""
    server.run("ACL", "SETUSER", USER, "allkeys")


def given(queue: Queue) -> None:
    """Make what the changes change."""
    queue.assign(["b"])
    queue.set_plan("gold", weight=3)
    queue.set_plan("old", weight=2)
    queue.pause(TENANTS[2])


CHANGES: Final[dict[str, Callable[[Queue], object]]] = {
    "assign": lambda queue: queue.assign(["a"]),
    "configure": lambda queue: queue.configure(max_deliveries=7),
    "delete_plan": lambda queue: queue.delete_plan("old"),
    "pause": lambda queue: queue.pause(TENANTS[0]),
    "resize": lambda queue: queue.resize(streams=6),
    "resume": lambda queue: queue.resume(TENANTS[2]),
    "set_limits": lambda queue: queue.set_limits({TENANTS[0]: Limits(rate=5)}),
    "set_plan": lambda queue: queue.set_plan("gold", weight=5),
    "set_weights": lambda queue: queue.set_weights({TENANTS[0]: 4}),
    "unassign": lambda queue: queue.unassign(),
}


def facts(owned: Any, number: int) -> Any:
    """All that changes can change in a partition, but for ends of time."""
    state, run = owned.state.parts.states[number], owned.client.run
    found = run(controls.controls(state))
    view = run(sight(state, state.until())).view
    return (
        run(queues.settings(state)).max_deliveries, view.wanted, sorted(view.assigned.by_key),
        found.plans, {key: each.limits for key, each in found.limits.items()}, [*found.paused],
        {key: each.weight for key, each in found.weights.items()},
    )  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_where_one_partition_fails_the_others_change_and_the_error_says_so(
    server: Server, owned: Queue, queue: Queue, change: str
) -> None:
    given(owned)
    make, first = CHANGES[change], facts(owned, 1)
    with pytest.raises(PartlyDone, match=r"that were changed: 0, 2; (perhaps, or in part|not): 1\. Make the") as failed:
        make(queue)
    assert failed.value.done == 2
    assert facts(owned, 1) == first
    assert facts(owned, 0) == facts(owned, 2)
    assert facts(owned, 0) != first
    let_in(server)
    make(queue)
    assert facts(owned, 0) == facts(owned, 1) == facts(owned, 2)


def test_a_schedule_that_may_be_in_a_partition_that_fails_too_can_be_changed_again(
    server: Server, owned: Queue, queue: Queue
) -> None:
    owned.schedules.add("nightly", nightly.call(), shard_key=TENANTS[2], every=3600)
    with pytest.raises(PartlyDone, match="that were changed: 2; not: 1"):
        queue.schedules.pause("nightly")
    assert [each.paused for each in owned.schedules.list()] == [True]
    with pytest.raises(PartlyDone, match="not: 1"):
        queue.schedules.remove("nightly")
    let_in(server)
    assert queue.schedules.remove("nightly") is False
    assert owned.schedules.list() == []


def test_a_purge_of_a_tenant_says_how_many_are_gone(owned: Queue, queue: Queue) -> None:
    """Its messages may be in several partitions, where its home has moved."""
    layer: Any = owned
    for state in layer.state.parts.states:
        _write_to(owned, state)
    with pytest.raises(PartlyDone, match="4 were done") as failed:
        queue.purge(shard_key="t")
    assert failed.value.done == 4
    assert owned.len() == 2


def test_a_queue_that_is_deleted_in_part_says_so_and_is_deleted_again(
    server: Server, owned: Queue, queue: Queue
) -> None:
    owned.write_many([("x", tenant) for tenant in TENANTS.values()])
    with pytest.raises(PartlyDone, match="partitions 2 of queue 'jobs' were deleted, with 1 message") as failed:
        queue.delete(expected=None)
    assert failed.value.done == 1
    let_in(server)
    assert queue.delete(expected=None) == 2
    assert not server.client().keys("shardq:{jobs*")


def test_one_that_failed_everywhere_says_what_each_says(owned: Queue, queue: Queue) -> None:
    with pytest.raises(ShardqError, match="no plan 'none'") as failed:
        owned.delete_plan("none")
    assert not isinstance(failed.value, PartlyDone)


def _write_to(queue: Any, state: Any) -> None:
    composed = [compose(state, queue.client.codecs, "x", "t") for _ in range(2)]
    queue.client.run(write_many(state, composed))
