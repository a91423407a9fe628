"""A key of the queue holds another type: the call is refused whole, and goes through once the key is mended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shardq import BackendError, Client, Limits, Message, ShardqError
from tests.fault.queue.bench import CHANGES, LOOKS, STREAMS, Bench, Furnished, PlainBench
from tests.promises.watching import watched
from tests.servers import Server
from tests.surface import differences, functions, looks

CALLS = CHANGES | LOOKS


@pytest.fixture
def bench(server: Server, queue_name: str) -> Iterator[Bench]:
    """A bench as most queues are."""
    with Client.from_url(server.url, timeout=20) as client:
        bench = Bench(server, client, queue_name)
        yield bench
        bench.plain.close()


@pytest.fixture
def furnished(server: Server, queue_name: str) -> Iterator[Furnished]:
    """A bench with all that there can be."""
    with Client.from_url(server.url, timeout=20) as client:
        bench = Furnished(server, client, queue_name)
        yield bench
        bench.plain.close()


@pytest.fixture
def fair_bench(server: Server, queue_name: str) -> Iterator[Bench]:
    """The same on a fair queue, where a shard key has a weight and more than its window."""
    with Client.from_url(server.url, timeout=20) as client:
        bench = Bench(server, client, queue_name, window=1, max_in_flight=4, parents=1)
        bench.queue.set_weights({"tenant-1": 3})
        bench.queue.write_many([("more", f"tenant-{n % 3}") for n in range(30)])
        yield bench
        bench.plain.close()


def failure(call: Callable[[Any], Any], bench: Bench) -> ShardqError | None:
    """How the call failed, None if it did not."""
    try:
        call(bench)
    except ShardqError as error:
        return error
    return None


def test_each_function_is_called() -> None:
    assert differences(CHANGES, functions().keys() - looks()) == []
    assert differences(LOOKS, looks()) == []


@pytest.mark.once
@pytest.mark.parametrize("call", CHANGES)
def test_a_call_on_a_key_of_another_type_changes_nothing(server: Server, furnished: Furnished, call: str) -> None:
    check_each_key(server, furnished, call)


@pytest.mark.once
def test_a_look_at_a_key_of_another_type_says_so(server: Server, furnished: Furnished) -> None:
    """Nothing of it could be written: that is what the flag `no-writes` says to Redis."""
    begin, keys = furnished.picture(), {name: keys_of(server, furnished, name) for name in LOOKS}
    told = set()
    for key in set().union(*keys.values()):
        furnished.spoil(key)
        for name in LOOKS:
            error = failure(LOOKS[name], furnished) if key in keys[name] else None
            if error is not None:
                told.add(name)
                assert isinstance(error, BackendError), (name, key)
                assert "another type" in str(error), (name, key)
        furnished.mend(key, begin)
    assert told == LOOKS.keys()


def keys_of(server: Server, bench: Bench, call: str) -> set[str]:
    """The keys that a call gives its functions, of which the one that it is for is one.

    But for the list of all queues: what strikes a deleted queue from it comes after the effect, and tells of that.
    """
    found: dict[str, set[str]] = {}
    with watched(server) as seen:
        CALLS[call](bench)
    for each in seen:
        if each.name in ("FCALL", "FCALL_RO"):
            _, function, count, *rest = each.words
            found.setdefault(function.split("_", 2)[2], set()).update(rest[: int(count)])
    named = call.partition(",")[0]
    assert named in found
    return set().union(*(keys for function, keys in found.items() if named == function or function != "register"))


FAIR = (
    "write", "write, delayed", "write, many", "read", "read, many", "settle, an ack", "settle, many acks",
    "settle, a nack", "settle, a nack with a delay", "settle, a reject", "cancel, waiting", "cancel, held", "redrive",
    "configure", "weigh", "purge", "stats",
)  # fmt: skip
"""Calls whose effects depend on the settings of a queue."""


@pytest.mark.runs_in("test-all")
@pytest.mark.once
@pytest.mark.parametrize("call", FAIR)
def test_a_call_on_a_fair_queue_changes_nothing_then_either(server: Server, fair_bench: Bench, call: str) -> None:
    check_each_key(server, fair_bench, call)


SETTINGS: dict[str, dict[str, int]] = {
    "rate": {"rate": 1000, "burst": 1000},
    "total": {"total_in_flight": 100, "total_rate": 1000, "total_burst": 1000},
    "window": {"window": 0},
    "full of dead letters": {"max_dead": 1},
    "dropping dead letters": {"max_dead": 1, "drop_dead": 1},
    "parents": {"parents": 1, "window": 1},
    "bounds": {"max_backlog": 1000, "max_len": 1000},
}


@pytest.mark.runs_in("test-all")
@pytest.mark.once
@pytest.mark.parametrize("call", FAIR)
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_call_with_other_settings_changes_nothing_then_either(
    server: Server, queue_name: str, call: str, settings: str
) -> None:
    """Beside unique keys, messages past their deadline, and limits of a shard key."""
    with Client.from_url(server.url, timeout=20) as client:
        bench = Bench(server, client, queue_name, **SETTINGS[settings])
        bench.queue.write_many([Message(str(n), f"unique-{n}", unique_key=str(n)) for n in range(4)])
        bench.queue.write_many([Message("late", f"late-{n}", deadline=0.001) for n in range(4)])
        if settings != "window":
            bench.queue.set_limits({"tenant": Limits(max_in_flight=2, rate=50, burst=5)})
        check_each_key(server, bench, call)
        bench.plain.close()


@pytest.mark.runs_in("test-all")
@pytest.mark.once
@pytest.mark.parametrize("window", [0, 1])
@pytest.mark.parametrize(
    ("call", "messages"),
    [
        *(("write", 5), ("read", 5), ("settle, an ack", 5), ("read, a poll", 0), ("write", 0)),
        *(("write, many alike", 0), ("write, many alike", 5), ("settle, many acks", 5)),
    ],
)
def test_a_call_in_the_common_case_changes_nothing_then_either(
    server: Server, queue_name: str, call: str, messages: int, window: int
) -> None:
    with Client.from_url(server.url, timeout=20) as client:
        bench = PlainBench(server, client, queue_name, window, messages)
        check_each_key(server, bench, call)
        bench.plain.close()


@pytest.mark.runs_in("test-all")
@pytest.mark.once
@pytest.mark.parametrize("call", ["write", "read", "read, many", "settle, an ack", "settle, a nack"])
def test_a_call_beside_unique_keys_changes_nothing_then_either(server: Server, queue_name: str, call: str) -> None:
    with Client.from_url(server.url, timeout=20) as client:
        bench = PlainBench(server, client, queue_name, 1, 0)
        bench.queue.write_many([Message(str(n), f"tenant-{n}", unique_key=str(n)) for n in range(6)])
        bench.held = bench.queue.read_many(2)
        check_each_key(server, bench, call)
        bench.plain.close()


@pytest.mark.once
@pytest.mark.parametrize("call", ["settle, an ack", "settle, many acks", "settle, a nack", "extend", "read, many"])
def test_a_call_beside_a_cancelled_message_changes_nothing_then_either(server: Server, bench: Bench, call: str) -> None:
    bench.queue.cancel(bench.held[-1].message_id)
    check_each_key(server, bench, call)


@pytest.mark.once
def test_a_message_is_written_though_nobody_can_be_woken_and_who_would_wait_is_told(bench: Bench) -> None:
    bench.spoil(bench.keys.notifications)
    written = bench.queue.write("new", shard_key="a quiet tenant")
    with pytest.raises(BackendError, match="another type"):
        read_all(bench)
    bench.plain.delete(bench.keys.notifications)
    found = [each.message_id for each in bench.queue.read_many(50)]
    assert written in found or bench.queue.status(written).state == "in_flight"


@pytest.mark.once
def test_what_was_worked_on_is_acked_though_its_stream_is_gone(bench: Bench) -> None:
    for number in range(STREAMS):
        bench.spoil(bench.keys.stream(number))
    before = bench.queue.stats()
    bench.held[0].ack()
    assert bench.queue.ack_many(bench.held[1:]) == []
    bench.plain.delete(*(bench.keys.stream(number) for number in range(STREAMS)))
    after = bench.queue.stats()
    assert (after.acked - before.acked, after.in_flight) == (len(bench.held), before.in_flight - len(bench.held))


def read_all(bench: Bench) -> None:
    while bench.queue.read_many(1):
        pass


def check_each_key(server: Server, bench: Bench, call: str) -> None:
    """For each key: the call fails and all other keys are as before, or it does not need the key and succeeds."""
    begin, keys = bench.picture(), keys_of(server, bench, call)
    bench.restore(begin)
    usual, needed = bench.content(), []
    for key in sorted(keys):
        bench.spoil(key)
        error = failure(CALLS[call], bench)
        if error is None:
            bench.restore(begin)
            continue
        needed.append(key)
        assert isinstance(error, BackendError), key
        assert "another type" in str(error), key
        now = bench.content()
        assert {each for each in usual.keys() | now.keys() if usual.get(each) != now.get(each)} == {key.encode()}
        bench.mend(key, begin)
    assert needed, "no key matters to this call?"
    CALLS[call](bench)
