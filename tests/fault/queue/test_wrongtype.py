"""A key of the queue holds another type: the call is refused whole, and goes through once the key is mended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import redis

from shardq import BackendError, Client, Delivery, Limits, Message, ShardqError
from shardq.protocol.keys import QueueKeys
from tests.servers import Server
from tests.state import set_line

STREAMS = 3
NAMES = [*QueueKeys("-").fixed, *(f"s{number}" for number in range(STREAMS))]
NAMES = [name.rpartition(":")[2] for name in NAMES]


class Bench:
    """A queue with something of everything in it: waiting, given back, delayed, ended and live leases, dead letters."""

    def __init__(self, server: Server, client: Client, name: str, **settings: Any) -> None:
        self.queue = client.queue(
            name,
            streams=STREAMS,
            streams_per_shard=2,
            max_deliveries=2,
            dedup_window=600,
            journal=1000,
            max_schedules=10,
            **settings,
        )
        self.keys = QueueKeys(name)
        self.plain = server.client()
        queue = self.queue
        queue.write_many([Message(str(n), f"tenant-{n % 7}") for n in range(20)])
        queue.write_many([Message(f"later {n}", "tenant", delay=60) for n in range(3)])
        queue.write("due", shard_key="tenant", delay=0.001)
        first, second, *self.held = queue.read_many(8, visibility_timeout=60)
        first.reject("poison")
        second.nack(error="again")
        queue.write("other", shard_key="tenant", dedup_key="known")
        self.worn = queue.read(visibility_timeout=60)
        self.worn.nack()
        self.ended = queue.read_many(2, visibility_timeout=0.05)
        self.letters = queue.dead()
        while self._past() < len(self.ended):
            pass  # until these leases have ended
        self.waiting = queue.write("waits", shard_key="tenant")
        queue.schedules.add("often", "call", shard_key="tenant", every=60)
        set_line(self.plain, self.keys, waiting=9 * 10**14)  # as if readers were blocked: everybody notifies

    def _past(self) -> int:
        """How many leases have ended; a score is bucket * 2^42 + ms."""
        now = _server_ms(self.plain)
        rows: Any = self.plain.zrange(self.keys.leases, 0, -1, withscores=True)
        return sum(score % 2**42 <= now for token, score in rows if token)

    def picture(self) -> dict[bytes, bytes]:
        """All keys, byte for byte."""
        keys = self._keys()
        return dict(zip(keys, self._all(("DUMP", key) for key in keys), strict=True))

    def content(self) -> dict[bytes, Any]:
        """The same, but hashes by their fields: the order of these in a dump changes by itself."""
        keys = self._keys()
        kinds = self._all(("TYPE", key) for key in keys)
        verbs = ["HGETALL" if kind == b"hash" else "DUMP" for kind in kinds]
        return dict(zip(keys, self._all(zip(verbs, keys, strict=True)), strict=True))

    def restore(self, picture: dict[bytes, bytes]) -> None:
        """Make all keys what they were."""
        self._all([("FLUSHALL",), *(("RESTORE", key, 0, dump) for key, dump in picture.items())])

    def _keys(self) -> list[bytes]:
        return self._all([("KEYS", "*")])[0]  # type: ignore[no-any-return]

    def _all(self, commands: Iterable[tuple[Any, ...]]) -> list[Any]:
        """The answers to these commands, in one round trip."""
        with self.plain.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            return pipe.execute()


class PlainBench(Bench):
    """A queue in the common case, which the straight parts of scripts are for; without *messages* nothing waits."""

    def __init__(self, server: Server, client: Client, name: str, window: int, messages: int) -> None:
        self.queue = client.queue(name, streams=STREAMS, streams_per_shard=2, window=window)
        self.keys = QueueKeys(name)
        self.plain = server.client()
        self.queue.write_many([("held", "another")] * 3)
        self.held = self.queue.read_many(3)
        for number in range(messages):
            self.queue.write("waits", shard_key=f"tenant-{number}")
        set_line(self.plain, self.keys, waiting=9 * 10**14)


def _server_ms(plain: redis.Redis) -> int:
    seconds, micros = plain.time()
    return seconds * 1000 + micros // 1000


CALLS: dict[str, Callable[[Bench], Any]] = {
    "write": lambda bench: bench.queue.write("new", shard_key="tenant"),
    "write delayed": lambda bench: bench.queue.write("new", shard_key="tenant", delay=1),
    "write keyed": lambda bench: bench.queue.write("new", shard_key="tenant", dedup_key="new"),
    "write many": lambda bench: bench.queue.write_many(
        [Message("new", f"t{n}", delay=n % 2, dedup_key=f"k{n}") for n in range(9)]
    ),
    "write many plain": lambda bench: bench.queue.write_many([("new", f"tenant-{n}") for n in range(9, 19)]),
    "read": lambda bench: bench.queue.read(),
    "read many": lambda bench: bench.queue.read_many(50),
    "poll": lambda bench: bench.queue.read_many(1),
    "ack": lambda bench: bench.held[0].ack(),
    "ack many": lambda bench: bench.queue.ack_many(bench.held),
    "nack": lambda bench: bench.held[0].nack(error="why"),
    "nack delayed": lambda bench: bench.held[0].nack(delay=1),
    "reject": lambda bench: bench.held[0].reject("why"),
    "extend": lambda bench: bench.held[0].extend(1),
    "cancel waiting": lambda bench: bench.queue.cancel(bench.waiting),
    "cancel held": lambda bench: bench.queue.cancel(bench.held[0].message_id),
    "redrive": lambda bench: bench.queue.redrive(bench.letters),
    "resize": lambda bench: bench.queue.resize(2),
    "configure": lambda bench: bench.queue.configure(max_len=10_000),
    "assign": lambda bench: bench.queue.assign(["tenant", "another"]),
    "unassign": lambda bench: bench.queue.unassign(),
    "assignment": lambda bench: bench.queue.assignment(),
    "weigh": lambda bench: bench.queue.set_weights({"tenant-3": 2}),
    "weights": lambda bench: bench.queue.weights(),
    "purge": lambda bench: bench.queue.purge(),
    "len": lambda bench: bench.queue.len(),
    "stats": lambda bench: bench.queue.stats(),
    "dead": lambda bench: bench.queue.dead(),
    "add a schedule": lambda bench: bench.queue.schedules.add("new", "call", shard_key="tenant", every=60),
    "pause a schedule": lambda bench: bench.queue.schedules.pause("often"),
    "remove a schedule": lambda bench: bench.queue.schedules.remove("often"),
    "list schedules": lambda bench: bench.queue.schedules.list(),
}


@pytest.fixture
def bench(server: Server, queue_name: str) -> Iterator[Bench]:
    """The bench, and its state as a picture to go back to."""
    with Client.from_url(server.url, timeout=20) as client:
        bench = Bench(server, client, queue_name)
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


def failure(call: Callable[[Bench], Any], bench: Bench) -> ShardqError | None:
    """How the call failed, None if it did not."""
    try:
        call(bench)
    except ShardqError as error:
        return error
    return None


@pytest.mark.once
@pytest.mark.parametrize("call", CALLS)
def test_a_call_on_a_key_of_another_type_changes_nothing(bench: Bench, call: str) -> None:
    check_each_key(bench, call)


FAIR = (
    "write", "write delayed", "write many", "read", "read many", "ack", "ack many", "nack", "nack delayed", "reject",
    "cancel waiting", "cancel held", "redrive", "configure", "weigh", "purge", "stats",
)  # fmt: skip


@pytest.mark.runs_in("test-all")
@pytest.mark.once
@pytest.mark.parametrize("call", FAIR)
def test_a_call_on_a_fair_queue_changes_nothing_then_either(fair_bench: Bench, call: str) -> None:
    check_each_key(fair_bench, call)


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
        check_each_key(bench, call)
        bench.plain.close()


@pytest.mark.runs_in("test-all")
@pytest.mark.once
@pytest.mark.parametrize("window", [0, 1])
@pytest.mark.parametrize(
    ("call", "messages"),
    [
        *(("write", 5), ("read", 5), ("ack", 5), ("poll", 0), ("write", 0)),
        *(("write many plain", 0), ("write many plain", 5), ("ack many", 5)),
    ],
)
def test_a_call_in_the_common_case_changes_nothing_then_either(
    server: Server, queue_name: str, call: str, messages: int, window: int
) -> None:
    with Client.from_url(server.url, timeout=20) as client:
        bench = PlainBench(server, client, queue_name, window, messages)
        check_each_key(bench, call)
        bench.plain.close()


@pytest.mark.runs_in("test-all")
@pytest.mark.once
@pytest.mark.parametrize("call", ["write", "read", "read many", "ack", "nack"])
def test_a_call_beside_unique_keys_changes_nothing_then_either(server: Server, queue_name: str, call: str) -> None:
    with Client.from_url(server.url, timeout=20) as client:
        bench = PlainBench(server, client, queue_name, 1, 0)
        bench.queue.write_many([Message(str(n), f"tenant-{n}", unique_key=str(n)) for n in range(6)])
        bench.held = bench.queue.read_many(2)
        check_each_key(bench, call)
        bench.plain.close()


@pytest.mark.once
@pytest.mark.parametrize("call", ["ack", "ack many", "nack", "extend", "read many"])
def test_a_call_beside_a_cancelled_message_changes_nothing_then_either(bench: Bench, call: str) -> None:
    bench.queue.cancel(bench.held[-1].message_id)
    check_each_key(bench, call)


@pytest.mark.once
def test_a_message_is_written_though_nobody_can_be_woken_and_who_would_wait_is_told(bench: Bench) -> None:
    spoil(bench, bench.keys.notifications)
    written = bench.queue.write("new", shard_key="a quiet tenant")
    with pytest.raises(BackendError, match="another type"):
        read_all(bench)
    bench.plain.delete(bench.keys.notifications)
    found = [each.message_id for each in bench.queue.read_many(50)]
    assert written in found or bench.queue.status(written).state == "in_flight"


@pytest.mark.once
def test_what_was_worked_on_is_acked_though_its_stream_is_gone(bench: Bench) -> None:
    for number in range(STREAMS):
        spoil(bench, bench.keys.stream(number))
    before = bench.queue.stats()
    bench.held[0].ack()
    assert bench.queue.ack_many(bench.held[1:]) == []
    bench.plain.delete(*(bench.keys.stream(number) for number in range(STREAMS)))
    after = bench.queue.stats()
    assert (after.acked - before.acked, after.in_flight) == (len(bench.held), before.in_flight - len(bench.held))


def read_all(bench: Bench) -> None:
    while bench.queue.read_many(1):
        pass


def spoil(bench: Bench, key: str) -> None:
    bench.plain.delete(key)
    bench.plain.set(key, "something else")


def check_each_key(bench: Bench, call: str) -> None:
    """For each key: the call fails and all other keys are as before, or it does not need the key and succeeds."""
    plain, begin, needed = bench.plain, bench.picture(), []
    held: list[Delivery] = bench.held
    for name in NAMES:
        key = f"{bench.keys.prefix}{name}".encode()
        plain.delete(key)
        plain.set(key, "something else")
        before = bench.content()
        error = failure(CALLS[call], bench)
        if error is not None:
            needed.append(name)
            assert isinstance(error, BackendError), name
            assert "another type" in str(error), name
            after = bench.content()
            assert {k for k in before.keys() | after.keys() if before.get(k) != after.get(k)} == set(), name
        bench.restore(begin)
    assert needed, "no key matters to this call?"
    CALLS[call](bench)
    assert held
