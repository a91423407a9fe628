"""However many ask, Redis is asked once a second; and what it does not say is never made up."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from shardq import BackendError, Client, ConfigError, QueueMissing, ShardqError
from shardq.exporter.answers import HttpAnswer
from shardq.exporter.errors import ToldError
from shardq.exporter.poller import FORGET_AFTER, FRESH_SECONDS, MAX_QUEUES, MAX_STRANGERS, SLOW_FRESH_SECONDS, Poller
from shardq.exporter.server import ServerNode
from shardq.outlook.facts import ServerMemory
from shardq.testing import ManualClock
from tests.acl import Users
from tests.servers import Server
from tests.waiting import eventually

ASKERS = 100


@contextmanager
def counted(server: Server) -> Iterator[Counter[str]]:
    """What the server did meanwhile, by verb or command."""
    before = server.run("CONFIG", "GET", "slowlog-log-slower-than")[1]
    server.run("CONFIG", "SET", "slowlog-log-slower-than", 0, "slowlog-max-len", 100_000)
    server.run("SLOWLOG", "RESET")
    done: Counter[str] = Counter()
    try:
        yield done
        with server.client() as plain:
            for entry in plain.slowlog_get(100_000):
                words = entry["command"].split(b" ")
                name = words[1 if words[0].upper().startswith(b"FCALL") else 0].decode().lower()
                done[re.sub("^shardq_[0-9a-f]+_", "", name)] += 1
    finally:
        server.run("CONFIG", "SET", "slowlog-log-slower-than", before)


def together(count: int, call: Callable[[], object]) -> list[Any]:
    """What *count* threads get that call at the same time: a result or an error each."""
    got: list[Any] = []
    gate = threading.Barrier(count)

    def ask() -> None:
        gate.wait()
        try:
            got.append(call())
        except Exception as error:  # noqa: BLE001 (it is looked at)
            got.append(error)

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return got


def test_a_hundred_askers_ten_times_a_second_make_one_call_a_second(server: Server, client: Client) -> None:
    client.queue("jobs", streams=4).declare()
    poller, ends = Poller(client), threading.Event()
    poller.stats("jobs")  # how many streams it has takes a call of its own, once
    asked = Counter[int]()
    seconds = 3.0

    def ask(number: int) -> None:
        while not ends.wait(0.1):
            assert poller.numbers("jobs").load == 0
            asked[number] += 1

    with counted(server) as done:
        began = time.monotonic()
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(ASKERS)]
        for each in threads:
            each.start()
        ends.wait(seconds)
        ends.set()
        for each in threads:
            each.join()
        lasted = time.monotonic() - began
    assert len(asked) == ASKERS
    assert asked.total() > 10 * done["stats"]
    assert 1 <= done["stats"] <= 1 + lasted / FRESH_SECONDS
    assert {
        name: done[name] for name in ("outlook", "history", "workers") if done[name] > 1 + lasted / SLOW_FRESH_SECONDS
    } == {}


@pytest.mark.once
def test_those_who_ask_at_the_same_time_get_the_same_answer(
    server: Server, client: Client, poller: Poller, clock: ManualClock
) -> None:
    client.queue("jobs", streams=4).declare()
    poller.stats("jobs")  # how many streams it has takes a call of its own, once
    clock.advance(FRESH_SECONDS)
    with counted(server) as done:
        got = together(ASKERS, lambda: poller.stats("jobs"))
    assert len(got) == ASKERS
    assert len({id(each) for each in got}) == 1
    assert done["stats"] == 1


def test_an_answer_is_fresh_for_a_second(client: Client, poller: Poller, clock: ManualClock) -> None:
    jobs = client.queue("jobs", streams=4)
    jobs.write(b"x", shard_key="t")
    assert poller.numbers("jobs").load == 1
    jobs.write(b"x", shard_key="t")
    clock.advance(FRESH_SECONDS * 0.99)
    assert poller.numbers("jobs").load == 1
    assert poller.age("jobs") == pytest.approx(FRESH_SECONDS * 0.99)
    clock.advance(FRESH_SECONDS * 0.02)
    assert (poller.numbers("jobs").load, poller.age("jobs")) == (2, 0)


def test_an_error_reaches_all_and_is_asked_for_once_a_second(
    server: Server, client: Client, poller: Poller, clock: ManualClock
) -> None:
    client.queue("jobs", streams=4).declare()
    with counted(server) as done:
        got = together(10, lambda: poller.stats("nothing"))
        clock.advance(FRESH_SECONDS * 0.9)
        got += together(10, lambda: poller.stats("nothing"))
    assert {type(each) for each in got} == {QueueMissing}
    assert len({id(each) for each in got}) == 20  # raised in several threads, one would collect their tracebacks
    assert done["stats"] == 1
    client.queue("nothing", streams=1).declare()
    with pytest.raises(QueueMissing):
        poller.stats("nothing")
    clock.advance(FRESH_SECONDS)
    assert poller.stats("nothing").backlog == 0


def test_what_redis_does_not_say_is_neither_0_nor_what_it_was(
    server: Server, client: Client, poller: Poller, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    poller.server.patience = 0.2
    client.queue("jobs", streams=4).write(b"x", shard_key="t")
    client.queue("mails", streams=4).declare()
    assert poller.numbers("jobs").load == 1
    assert poller.is_ready()
    server.kill9()
    clock.advance(10)
    with monkeypatch.context() as patch:
        run, waits = client._driver.run, list[Any]()

        def counted_run(op: Any) -> Any:
            waits.append(op)
            return run(op)

        patch.setattr(client._driver, "run", counted_run)
        for name in ("jobs", "jobs", "mails", "other"):
            with pytest.raises(BackendError):
                poller.numbers(name)
            assert len(waits) == 1, "only the first one waits for the server"
    assert not poller.is_ready()
    assert poller.age("jobs") == 10
    assert poller.age("mails") is None
    server.start()
    client.queue("jobs", streams=4).write(b"x", shard_key="t")

    def is_back() -> bool:
        clock.advance(FRESH_SECONDS)
        return poller.numbers("jobs").load > 0

    eventually(lambda: _without(BackendError, is_back), what="the numbers are there again")
    assert (poller.age("jobs"), poller.is_ready()) == (0, True)


def _without(error: type[Exception], call: Callable[[], bool]) -> bool:
    try:
        return call()
    except error:
        return False


def test_what_cannot_be_reckoned_hides_nothing_else(server: Server, client: Client) -> None:
    """The role autoscaler may read numbers, and nothing of workers."""
    client.queue("jobs", streams=4).write(b"x", shard_key="t")
    users = Users(server)
    try:
        with Client.from_url(users.url("autoscaler")) as allowed:
            numbers = Poller(allowed).numbers("jobs")
        assert (numbers.load, numbers.workers, numbers.slots, numbers.drain_time) == (1, None, None, None)
        with Client.from_url(users.url("observer")) as allowed:
            poller = Poller(allowed)
            numbers = poller.numbers("jobs")
            assert (numbers.load, numbers.workers, numbers.slots) == (1, 0, 0)
            assert poller.queues() == ["jobs"]
            assert [node.memory is not None for node in poller.nodes()] == [True]
    finally:
        users.remove()


def test_names_that_nobody_has_fill_neither_memory_nor_redis(
    server: Server, client: Client, poller: Poller, clock: ManualClock
) -> None:
    client.queue("jobs", streams=4).declare()
    poller.stats("jobs")
    with counted(server) as done:
        got = [_error_of(poller, f"n{number}") for number in range(5 * MAX_STRANGERS)]
        assert poller.stats("jobs").backlog == 0
    assert Counter(map(type, got)) == {QueueMissing: MAX_STRANGERS, ToldError: 4 * MAX_STRANGERS}
    assert done["stats"] == MAX_STRANGERS
    assert len(poller._known) + len(poller._strangers) <= 1 + MAX_STRANGERS
    clock.advance(FRESH_SECONDS)
    assert isinstance(_error_of(poller, "n0"), QueueMissing)
    with pytest.raises(ConfigError, match="queue name"):
        poller.stats("jobs\n")


def _error_of(poller: Poller, queue: str) -> ShardqError:
    with pytest.raises(ShardqError) as raised:
        poller.stats(queue)
    return raised.value


def test_a_queue_is_told_of_however_many_names_strangers_make_up(
    client: Client, poller: Poller, clock: ManualClock
) -> None:
    """Also by a scaler that has just started, and knows no queue yet."""
    names = ["jobs", "mails"]
    for name in names:
        client.queue(name, streams=1).declare()
    for second in range(2):
        for number in range(MAX_STRANGERS + 1):
            _error_of(poller, f"s{second}-{number}")
        assert [poller.stats(name).backlog for name in names] == [0, 0]
        clock.advance(FRESH_SECONDS)


@pytest.mark.runs_in("test-all")
def test_many_queues_are_asked_for_once_each(
    server: Server, client: Client, poller: Poller, clock: ManualClock
) -> None:
    names = [f"q{number}" for number in range(3 * MAX_STRANGERS)]
    for name in names:
        client.queue(name, streams=1).declare()
    assert poller.queues() == sorted(names)
    for name in names:
        poller.stats(name)
    clock.advance(FRESH_SECONDS)
    with counted(server) as done:
        for _ in range(3):
            for name in names:
                poller.stats(name)
    assert done["stats"] == len(names) <= MAX_QUEUES


def test_a_queue_that_nobody_asks_for_is_forgotten(client: Client, poller: Poller, clock: ManualClock) -> None:
    for name in ("jobs", "mails"):
        client.queue(name, streams=1).declare()
        poller.stats(name)
    clock.advance(FORGET_AFTER + 1)
    poller.stats("jobs")
    assert poller.age("mails") is None


def test_what_was_delivered_meanwhile_tells_that_somebody_reads(
    client: Client, poller: Poller, clock: ManualClock
) -> None:
    """A reader that tells nothing of itself, and has nothing in its hands when it is looked at."""
    jobs = client.queue("jobs", streams=4, visibility_timeout=1)
    for _ in range(3):
        jobs.write(b"x", shard_key="t")
    poller.numbers("jobs")
    jobs.read().ack()
    clock.advance(SLOW_FRESH_SECONDS)
    outlook = poller.outlook("jobs")
    assert outlook is not None
    assert outlook.is_read


def test_a_cluster_tells_of_each_node(cluster: Any) -> None:
    with Client.from_url(cluster.url) as client:
        poller = Poller(client)
        for name in ("a", "b", "c", "d", "e", "f"):
            client.queue(name, streams=1).declare()
            assert poller.numbers(name).load == 0
        assert 1 <= len(poller.nodes()) <= 3
        assert poller.is_ready()
        assert {node.memory is not None for node in poller.nodes()} == {True}


def test_what_was_refused_never_gets_less_whichever_nodes_answer(poller: Poller) -> None:
    def node(name: str, refused: int) -> ServerNode:
        return ServerNode(name, ServerMemory(used=0, limit=0, refused=refused))

    a, b = node("a", 1000), node("b", 3)
    assert [poller.refused(them) for them in ([a, b], [b], [], [a, b])] == [1003] * 4
    assert poller.refused([node("b", 5)]) == 1005
    assert poller.refused([node("new", 700), a]) == 1005  # what it counted before anybody looked is no news
    assert poller.refused([node("new", 701)]) == 1006
    assert poller.refused([node("b", 2)]) == 1008  # set back, and refused two since


def test_an_error_that_nobody_expects_is_no_answer(clock: ManualClock) -> None:
    answers: Iterator[int | ZeroDivisionError] = iter([1, ZeroDivisionError(), 2])

    def ask() -> int:
        found = next(answers)
        if isinstance(found, ZeroDivisionError):
            raise found
        return found

    answer = HttpAnswer(ask, FRESH_SECONDS, clock)
    assert answer.get() == 1
    clock.advance(FRESH_SECONDS)
    with pytest.raises(ZeroDivisionError):
        answer.get()
    assert answer.get() == 2
