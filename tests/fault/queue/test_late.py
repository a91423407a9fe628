"""Calls that reach the server late, after others of the same caller: what those did stays as it is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from shardq import Client, Limits, Message, Queue
from shardq.ops.operate.queues import purge
from shardq.ops.read.give_back import recover
from shardq.ops.read.waiting import Outstanding
from tests.conformance.census import take
from tests.fault.conftest import Open
from tests.proxy import Proxy, on_the_wire
from tests.servers import Server
from tests.state import odd_of, set_odd
from tests.surface import differences, moves_of_the_epoch

Act = Callable[[Queue], Any]


@pytest.fixture
def client(proxy: Proxy, open_client: Open) -> Client:
    """A client whose connections go through the proxy."""
    return open_client(proxy.url)


@pytest.fixture
def queue(client: Client, queue_name: str) -> Queue:
    """A queue that exists, with a window."""
    queue = client.queue(queue_name, streams=4, streams_per_shard=2, window=1)
    queue.read_many(1)
    return queue


@pytest.fixture
def copied(proxy: Proxy) -> Callable[[str], list[bytes]]:
    """Collects the calls of a script."""
    return lambda script: proxy.copies(on_the_wire(script))


def wanted(queue: Queue) -> Any:
    return queue.stats().wanted


def shards(queue: Queue) -> Any:
    return sorted(name for name, _ in queue.assignment().items())


def waiting(queue: Queue) -> Any:
    return queue.len(), queue.stats().delayed


CHANGES: dict[str, tuple[str, Act, Act, Act]] = {
    "configure": (
        "configure", lambda q: q.configure(max_deliveries=5), lambda q: q.configure(max_deliveries=9), Queue.settings,
    ),
    "a bound taken away": (
        "configure", lambda q: q.configure(max_len=1), lambda q: q.configure(max_len=0), Queue.settings,
    ),
    "resize": ("resize", lambda q: q.resize(8), lambda q: q.resize(6), wanted),
    "shrink": ("shrink", lambda q: q.resize(2), lambda q: q.resize(8), lambda q: (wanted(q), len(q.stats().streams))),
    "assign": ("assign", lambda q: q.assign(["a", "b"]), lambda q: q.unassign(["b"]), shards),
    "unassign": ("assign", lambda q: (q.assign(["b"]), q.unassign()), lambda q: q.assign(["a", "b"]), shards),
    "set_weights": ("weigh", lambda q: q.set_weights({"a": 3}), lambda q: q.set_weights({"a": 5}), Queue.weights),
    "set_limits": (
        "limit", lambda q: q.set_limits({"a": Limits(rate=5)}), lambda q: q.set_limits({"a": Limits(rate=9)}),
        Queue.limits,
    ),
    "pause": ("limit", lambda q: q.pause("a"), lambda q: q.resume("a"), Queue.paused),
    "pause the queue": ("pause", lambda q: q.pause(), lambda q: q.resume(), Queue.paused),
    "set_plan": ("plan", lambda q: q.set_plan("gold", rate=5), lambda q: q.set_plan("gold", rate=9), Queue.plans),
    "no weight": ("weigh", lambda q: q.set_weights({"a": 1}), lambda q: q.set_weights({"a": 5}), Queue.weights),
}  # fmt: skip


def test_each_function_that_moves_the_epoch_comes_late() -> None:
    apart = {
        "purge": "what it removes is another matter: see below",
        "knows": "an older map moves nothing: tests/conformance/queue/test_same_twice.py",
    }
    assert differences({function for function, *_ in CHANGES.values()}, moves_of_the_epoch(), apart) == []


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("change", CHANGES)
def test_a_late_change_does_not_undo_a_later_one(
    queue: Queue, proxy: Proxy, copied: Callable[[str], list[bytes]], change: str
) -> None:
    script, earlier, later, state = CHANGES[change]
    copies = copied(script)
    earlier(queue)
    late = list(copies)
    assert late
    later(queue)
    before = state(queue)
    for request in late:
        proxy.deliver(request)
    assert state(queue) == before
    queue.write("goes on", shard_key="a")
    assert state(queue) == before


def test_a_late_refresh_of_the_expiry_does_not_let_a_queue_expire_that_is_to_stay(
    queue: Queue, proxy: Proxy, server: Server, copied: Callable[[str], list[bytes]]
) -> None:
    copies = copied("touch")
    queue.configure(ttl=100)
    late = list(copies)
    assert late
    queue.configure(ttl=None)
    for request in late:
        proxy.deliver(request)
    assert {server.run("PTTL", key) for key in server.run("KEYS", "*")} == {-1}


def filled(queue: Queue) -> None:
    """Messages in streams, in overflows, in the line of returned ones, and delayed ones: nine in all."""
    queue.write_many([Message(n, "t") for n in range(3)] + [Message(n, "t", delay=1000) for n in range(2)])
    queue.write_many([Message(n, "u") for n in range(3)])
    queue.nack_many(queue.read_many(2))
    [last] = queue.read_many(1)
    last.nack(delay=1000)
    queue.write("ninth", shard_key="v")


@pytest.mark.parametrize("chunk", [1, 2, 250])
def test_a_late_purge_leaves_what_was_written_since(
    queue: Queue,
    proxy: Proxy,
    server: Server,
    copied: Callable[[str], list[bytes]],
    monkeypatch: pytest.MonkeyPatch,
    chunk: int,
) -> None:
    monkeypatch.setattr("shardq.ops.operate.queues.PURGE_CHUNK", chunk)
    filled(queue)
    copies = copied("purge")
    assert queue.purge() == 9
    late = list(copies)
    assert waiting(queue) == (0, 0)
    filled(queue)
    before = waiting(queue)
    assert sum(before) == 9
    for request in late:
        proxy.deliver(request)
    assert waiting(queue) == before
    with server.client() as raw:
        assert take(raw, queue.state.keys).problems() == []
    assert queue.purge() == 9


def test_a_queue_that_is_purged_by_two_at_once_is_empty_when_each_returns(
    server: Server, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that ends first moves the epoch under the other."""
    monkeypatch.setattr("shardq.ops.operate.queues.PURGE_CHUNK", 1)
    with Client.from_url(server.url) as one, Client.from_url(server.url) as other:
        queue = one.queue(queue_name, streams=4, window=1)
        filled(queue)
        purging = purge(queue.state)
        step = next(purging)
        for _ in range(4):
            step = purging.send(one._driver.perform(step))
        other.queue(queue_name, create=True).purge()
        with contextlib.suppress(StopIteration):
            while True:
                step = purging.send(one._driver.perform(step))
        assert waiting(queue) == (0, 0)


def test_dead_letters_that_are_redriven_late_stay_where_they_came_to_lie(
    queue: Queue, proxy: Proxy, copied: Callable[[str], list[bytes]]
) -> None:
    copies = copied("redrive")
    queue.write("work", shard_key="t")
    queue.read().reject("poison")
    queue.redrive(queue.dead())
    queue.read().reject("poison")
    assert copies
    for request in copies:
        proxy.deliver(request)
    assert (queue.len(), len(queue.dead())) == (0, 1)


def test_a_late_recovery_takes_back_nothing_of_the_read_after_it(
    queue: Queue, proxy: Proxy, copied: Callable[[str], list[bytes]]
) -> None:
    """Each try of a read has leases of its own."""
    queue.write_many([(n, "t") for n in range(5)])
    copies, cut = copied("recover"), proxy.cut_after_request(on_the_wire("read"))
    deliveries = queue.read_many(5, block=15)
    assert cut.struck.wait(30)
    assert copies
    for request in copies:
        proxy.deliver(request)
    assert queue.stats().in_flight == len(deliveries)
    assert queue.ack_many(deliveries) == []


def test_a_late_read_is_granted_nothing_that_nobody_would_know_of(
    queue: Queue, proxy: Proxy, copied: Callable[[str], list[bytes]]
) -> None:
    """Its caller gave up on it, and gave back what it was granted: nothing, since it was still under way."""
    queue.write_many([(n, "t") for n in range(5)])
    copies, cut = copied("read"), proxy.cut_before_request(on_the_wire("read"))
    deliveries = queue.read_many(2, block=15)
    assert cut.struck.wait(30)
    proxy.deliver(copies[0])
    assert queue.stats().in_flight == len(deliveries)
    deliveries += queue.read_many(5)
    assert queue.ack_many(deliveries) == []
    assert {each.count for each in deliveries} == {1}


def test_little_is_noted_of_reads_that_were_given_up_on_and_not_for_long(queue: Queue, server: Server) -> None:
    keys, raw = queue.state.keys, redis.Redis.from_url(server.url)
    for number in range(200):
        queue._client.run(recover(queue.state, Outstanding(f"holder-{number:015}", 0, 30_000), queue.state.until()))
    noted = odd_of(raw, keys)["void"]
    assert len(noted) < 1500
    assert "holder-000000000000199" in noted
    assert queue.read_many(1) == []
    assert odd_of(raw, keys)["void"] == noted
    set_odd(raw, keys, void="1" + noted[13:])
    assert queue.read_many(1) == []
    assert "void" not in odd_of(raw, keys)


@pytest.mark.parametrize("many", [1, 1500])
def test_a_late_change_of_bindings_does_not_undo_a_later_one(
    client: Client, proxy: Proxy, copied: Callable[[str], list[bytes]], many: int
) -> None:
    pairs = [(f"orders.{number}", "q") for number in range(many)]
    copies = copied("bind")
    client.bind_many(pairs)
    client.bind("other", "q")
    bound = list(copies)
    client.unbind_many(pairs)
    unbound = [each for each in copies if each not in bound]
    for request in bound:
        proxy.deliver(request)
    assert {each.pattern for each in client.router().bindings()} == {"other"}
    assert client.bind_many(pairs) == []
    for request in unbound:
        proxy.deliver(request)
    assert len(list(client.router().bindings())) == many + 1


@pytest.mark.parametrize("verb", ["bind", "unbind"])
def test_a_change_of_bindings_whose_answer_is_lost_is_told_as_done(
    client: Client, proxy: Proxy, server: Server, verb: str
) -> None:
    if verb == "unbind":
        client.bind("orders", "q")
    cut = proxy.cut_after_request(on_the_wire("bind"))
    assert client.bind("orders", "q") if verb == "bind" else client.unbind("orders", "q")
    assert cut.struck.wait(30)
    with Client.from_url(server.url) as other:
        assert len(list(other.router().bindings())) == (verb == "bind")


def test_those_who_bind_side_by_side_do_not_wait_for_one_another(server: Server) -> None:
    """A change of another binding makes none late; one of the same binding is made again."""
    with ThreadPoolExecutor() as pool, Client.from_url(server.url) as client:
        work = [pool.submit(client.bind_many, [(f"{n % 3}.{k}", "q") for k in range(300)]) for n in range(6)]
        twice = [len(each.result()) for each in work]
    assert sum(twice) == 900
    with Client.from_url(server.url) as other:
        assert len(list(other.router().bindings())) == 900
