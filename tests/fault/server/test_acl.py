"""The users that `shardq server acl` makes: each can do its work on a real server."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from shardq import BackendError, Client, Limits, MessageDead, NoResult, Queue, ResultPending
from shardq.cli.declared import changes, exported
from shardq.cli.nodes import driver_for
from shardq.clock import SystemClock
from shardq.declared import parsed
from shardq.model.message import OnConflict
from shardq.ops.operate.libraries import load_library
from shardq.ops.read.give_back import recover
from shardq.ops.read.waiting import Outstanding
from shardq.ops.results.waiters import result_waiting_of
from shardq.ops.topics.publish import match_queues
from shardq.ops.write.outgoing import Outgoing
from shardq.ops.write.release import release
from shardq.ops.write.write import write_many
from shardq.protocol.roles import ROLES, rules
from tests.acl import PASSWORD, Users
from tests.fault.conftest import Open
from tests.servers import Cluster, Server
from tests.waiting import eventually


def test_a_caller_waits_for_results(server: Server, users: Users, open_client: Open) -> None:
    operator, consumer, caller = (
        open_client(users.url(name)).queue("jobs", streams=1, streams_per_shard=1, result_ttl=60)
        for name in ("operator", "consumer", "caller")
    )
    operator.declare()
    done, dead, gone, held = (caller.write(number, shard_key="tenant") for number in range(4))
    with ThreadPoolExecutor() as pool:
        waits = [pool.submit(caller.result, each, timeout=60) for each in (done, dead)]
        eventually(lambda: len(result_waiting_of(caller.state).waiters()) == 2)
        first = consumer.read()
        first.progress(1, 2)
        assert caller.status(done).progress is not None
        first.ack(result="done")
        consumer.read().reject("bad")
        assert waits[0].result(30) == "done"
        with pytest.raises(MessageDead):
            waits[1].result(30)
    operator.cancel(gone)
    for each in (gone, held):
        with pytest.raises((NoResult, ResultPending)):
            caller.result(each, timeout=0.05)
    assert caller.status(done).state == "done"
    modes: list[OnConflict] = ["existing", "replace"]
    ids = {caller.write(number, shard_key="t", unique_key="k", on_conflict=modes[number % 2], delay=delay)
           for number in range(4) for delay in (None, 60, 0)}  # fmt: skip
    assert len(ids) == 1
    while consumer.read().message_id not in ids:
        pass
    assert caller.write(9, shard_key="t", unique_key="k", on_conflict="replace") not in ids


@pytest.mark.runs_in("test-all")
def test_each_role_can_do_its_work(server: Server, users: Users, open_client: Open) -> None:
    operator, consumer, producer, autoscaler, observer = (
        open_client(users.url(name)).queue("jobs", streams=4, streams_per_shard=2)
        for name in ("operator", "consumer", "producer", "autoscaler", "observer")
    )
    assert (autoscaler.len(), observer.len(), observer.stats().backlog) == (0, 0, 0)
    assert consumer.read_many(1, block=0.05) == []  # creates the queue, and blocks
    operator.configure(journal=10_000)
    begun = observer.journal().position
    early = []
    for _ in range(2):
        early.append(producer.write("plain", shard_key="tenant"))
        producer.write("keyed", shard_key="tenant", dedup_key="key")
        early.append(producer.write("later", shard_key="tenant", delay=60))
        early += producer.write_many([(str(n), f"tenant-{n}") for n in range(20)])
        server.run("SCRIPT", "FLUSH")
    assert autoscaler.len() == autoscaler.stats().runnable == observer.stats().backlog == 43
    assert observer.stats().delayed == 2
    assert {observer.status(each).state for each in early} == {"waiting", "held_back", "delayed"}
    assert len(observer.peek(100).messages) == 43
    assert len(observer.peek(100, shard_key="tenant", payloads=True).messages) == 3
    assert len(observer.peek(state="delayed").messages) == 2
    first, second, third, fourth, *rest = consumer.read_many(30, block=20)
    assert observer.status(first.message_id).state == "in_flight"
    cancelled = rest.pop()
    operator.cancel(cancelled.message_id)
    assert len(observer.peek(100, state="in_flight").messages) == 30
    assert len(consumer.ack_many([cancelled])) == 1
    first.nack(delay=0.01, error="again")
    second.nack()
    third.reject("poison")
    fourth.extend(60)
    assert consumer.ack_many([fourth, *rest]) == []
    while observer.len():
        if deliveries := consumer.read_many(30, visibility_timeout=0.05, block=0.2):
            assert deliveries.pop().count  # that one's lease ends
            consumer.ack_many(deliveries)
    assert len(observer.dead()) == len(observer.peek(100, state="dead").messages) >= 1
    assert operator.redrive(operator.dead()) >= 1
    operator.configure(max_len=1000, ttl=3600)
    assert len(operator.assign(["tenant", "another"])) == 2
    producer.write("assigned", shard_key="another")
    assert len(operator.unassign()) == 0
    operator.set_limits({"limited": Limits(max_in_flight=1, rate=50, burst=2)})
    operator.pause("paused")
    operator.pause(seconds=60)
    assert [*observer.limits()] == ["limited"]
    assert {*observer.paused()} == {None, "paused"}
    producer.write_many([(n, key) for n in range(3) for key in ("limited", "paused")])
    assert consumer.read_many(9) == []
    operator.resume()
    limited = 0
    while limited < 3:
        delivery = consumer.read(block=20)
        assert delivery.shard_key != "paused"
        limited += delivery.shard_key == "limited"
        delivery.ack()
    operator.resume("paused")
    while deliveries := consumer.read_many(9):
        assert consumer.ack_many(deliveries) == []
    operator.set_limits({"limited": Limits()})
    assert operator.resize(2)[1] == 2
    waiting = producer.write("waits", shard_key="tenant")
    assert observer.status(waiting).state == "waiting"
    assert operator.cancel(waiting) == "removed"
    operator.purge()
    assert operator.stats().backlog == 0
    producer.write("last", shard_key="tenant")
    assert consumer.read(block=20).payload == "last"
    happened = observer.journal(10_000, after=begun)
    assert happened.lost == 0
    kinds = {each.kind for each in happened.events}
    assert kinds >= {"written", "delivered", "acked", "nacked", "rejected", "lease_ended"}
    assert {each.kind for each in happened.events} >= {"redriven", "cancelled", "purged"}
    assert operator.client.queues() == observer.client.queues() == ["jobs"]
    assert [each.shard_key for each in observer.tenants()] == []
    assert observer.tenant("tenant").backlog == 0
    operator.client.bind("orders.*", operator)
    assert operator.client.router().match("orders.new") == {"jobs"}
    assert observer.settings() == operator.settings()
    assert (observer.weights(), len(observer.assignment())) == (operator.weights(), len(operator.assignment()))
    text, left_out = exported(observer.client, ["jobs"], ["default"])
    assert (text, left_out) == exported(operator.client, ["jobs"], ["default"])
    assert 'pattern = "orders.*"' in text
    assert changes(observer.client, parsed(text.encode())) == []
    with pytest.raises(BackendError):
        observer.configure(max_deliveries=9)
    assert operator.client.unbind("orders.*", operator)
    assert operator.delete(expected=None) == 1
    assert (operator.client.queues(), observer.stats().streams) == ([], ())


def test_a_gateway_may_write_release_and_follow_bindings(users: Users, server: Server) -> None:
    with Client.from_url(users.url("gateway")) as gateway, Client.from_url(server.url) as admin:
        with pytest.raises(BackendError):
            gateway.queue("jobs", create=True).write("a queue that is not there", shard_key="t")
        jobs = admin.queue("jobs", streams=4)
        jobs.read_many(1)
        admin.bind("a.*", jobs)
        state = gateway.state_of("jobs", {}, remember=3600.0)
        (first,) = gateway.run(write_many(state, [Outgoing(b"t", "b", b"x", dedup_key="k", most_ids=9)]))
        assert gateway.run(release(state, ["k"])) == 1
        (second,) = gateway.run(write_many(state, [Outgoing(b"t", "b", b"x", dedup_key="k", most_ids=9, delay=5)]))
        assert first != second
        router = gateway.router_state()
        assert gateway.run(match_queues(router, "a.b", "return", None)) == ["jobs"]
        with pytest.raises(BackendError):
            gateway.bind("b", "jobs")


def test_a_queue_that_a_user_may_not_read_is_not_said_to_be_gone(users: Users) -> None:
    with Client.from_url(users.url("operator")) as operator, Client.from_url(users.url("observer")) as observer:
        operator.bind_many([("a", "jobs"), ("a", "others")])
        expected = [("a", "jobs", True), ("a", "others", None)]
        assert operator.bindings() == observer.bindings() == expected
        with pytest.raises(BackendError):
            observer.unbind_gone()
        assert operator.unbind_gone() == [("a", "jobs")]
        assert operator.bindings() == expected[1:]


def test_a_consumer_may_give_back_what_a_lost_read_was_granted(users: Users) -> None:
    with Client.from_url(users.url("consumer")) as client:
        queue = client.queue("jobs", streams=4)
        queue.write("work", shard_key="tenant")
        lost = queue.read().received.token.split(":")[3]
        client.run(recover(queue.state, Outstanding(lost, 0, 60_000), queue.state.until()))
        assert queue.read().count == 1


def test_a_consumer_may_give_back_what_has_to_be_held_back(users: Users) -> None:
    with Client.from_url(users.url("consumer")) as client:
        queue = client.queue("jobs", streams=4, window=1)
        queue.write_many([(number, "tenant") for number in range(30)])
        held = queue.read_many(30, block=20)
        assert queue.nack_many(held) == []
        assert len(queue.read_many(30, block=20)) == len(held)


def test_upkeep_by_a_consumer_is_allowed(users: Users, caplog: pytest.LogCaptureFixture) -> None:
    with Client.from_url(users.url("consumer")) as client, Client.from_url(users.url("operator")) as admin:
        queue = client.queue("jobs", streams=8)
        queue.read_many(1)
        admin.queue("jobs", create=True).configure(ttl=100)
        queue.write("work", shard_key="tenant")
        admin.queue("jobs", create=True).resize(2)
        queue.read().ack()
        queue.state.touch_at = queue.state.shrink_at = 0.0
        queue.read_many(1)
        assert len(admin.queue("jobs", create=True).stats().streams) == 2
    assert "upkeep" not in caplog.text


def test_those_who_may_not_load_the_library_work_with_scripts(server: Server, users: Users, open_client: Open) -> None:
    server.run("FUNCTION", "FLUSH")  # what tests before this one have loaded
    consumer, producer = (open_client(users.url(name)).queue("jobs", streams=1) for name in ("consumer", "producer"))
    assert consumer.read_many(1) == []
    assert producer.write(1, shard_key="tenant")
    open_client(users.url("operator")).queue("jobs", create=True).stats()
    assert server.run("FUNCTION", "LIST") == []
    with driver_for(users.url("loader")) as loader:
        assert loader.run(load_library(SystemClock(), 30))
        assert not loader.run(load_library(SystemClock(), 30))
    assert server.run("FUNCTION", "LIST") != []
    for name in ("consumer", "producer"):
        assert open_client(users.url(name)).queue("jobs", create=True).write(2, shard_key="tenant")
    calls = server.run("INFO", "commandstats")
    assert "cmdstat_fcall" in str(calls)
    assert consumer.read().payload == 1


def test_a_pattern_for_one_queue_covers_no_other(users: Users) -> None:
    with Client.from_url(users.url("consumer")) as client:
        for name in ("job", "jobs2", "jobs/eu", "JOBS"):
            with pytest.raises(BackendError):
                client.queue(name, create=True).read()


@pytest.mark.parametrize(
    ("user", "act", "told"),
    [
        (
            "producer",
            lambda queue: queue.purge(),
            "to call purge.*role operator has it, and `shardq server acl operator",
        ),
        ("producer", lambda queue: queue.read(), "to call read.*role consumer has it"),
        ("observer", lambda queue: queue.write("no", shard_key="t"), "create the queue.*role consumer or operator has"),
        ("autoscaler", lambda queue: queue.journal(), "to call journal.*role observer or operator has it"),
    ],
)
def test_who_is_denied_a_call_is_told_which_role_has_the_right(
    server: Server, users: Users, open_client: Open, user: str, act: Callable[[Queue], object], told: str
) -> None:
    with Client.from_url(server.url) as client:
        client.queue("jobs", streams=1).write("work", shard_key="t")
    with pytest.raises(BackendError, match=told) as caught:
        act(open_client(users.url(user)).queue("jobs", create=True))
    assert "\n" not in str(caught.value)


def test_who_may_not_create_a_queue_is_told_that_it_is_missing_and_changes_nothing(
    server: Server, users: Users, open_client: Open
) -> None:
    with pytest.raises(BackendError, match=r"to create the queue, or what is missing of it.*role consumer or operator"):
        open_client(users.url("producer")).queue("jobs", streams=4).write("work", shard_key="t")
    assert server.run("DBSIZE") == 0


@pytest.mark.parametrize("role", ROLES)
def test_a_client_of_each_role_starts_without_a_word(
    server: Server, users: Users, open_client: Open, role: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Client.from_url(server.url) as client:
        client.queue("jobs", streams=1).write("work", shard_key="t")
    client = open_client(users.url(role))
    try:
        client.queue("jobs", create=True).len()
    except BackendError:
        assert role in ("loader", "producer")
    assert caplog.messages == []


def test_roles_do_their_work_on_a_cluster(cluster: Cluster, queue_name: str) -> None:
    names = ("operator", "producer", "consumer", "caller")
    for node in cluster.nodes:
        for name in names:
            given = rules(ROLES[name], [queue_name], cluster=True)
            node.run("ACL", "SETUSER", name, "reset", "on", f">{PASSWORD}", *given)
    with ExitStack() as stack:
        urls = [cluster.url.replace("://", f"://{name}:{PASSWORD}@") for name in names]
        operator, producer, consumer, caller = (
            stack.enter_context(Client.from_url(url)).queue(queue_name, streams=4, result_ttl=60) for url in urls
        )
        operator.declare()
        message_id = producer.write("work", shard_key="tenant")
        consumer.read(block=20).ack(result="done")
        assert caller.result(message_id, timeout=20) == "done"
        assert operator.delete(expected=None) == 0
    for node in cluster.nodes:
        node.run("ACL", "DELUSER", *names)
