"""Lanes, by which a repeated write is known: remembered for as long as it may come, and bounded in number."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shardq import Client, OutcomeUnknown, OutOfMemory, Queue
from shardq.clock import SystemClock
from shardq.spark.ops.bulk import BulkOffset, store_rows
from shardq.spark.ops.rows import RowPace, Rows
from tests.conftest import Mutate
from tests.fault.conftest import Open
from tests.proxy import Proxy, on_the_wire
from tests.servers import Server
from tests.waiting import eventually

WEEK = 7 * 86_400.0
HOUR = 3600.0


class Shifted(SystemClock):
    """A clock that goes on as the system's, `by` seconds ahead."""

    by = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.by


@pytest.fixture
def clock() -> Shifted:
    return Shifted()


@pytest.fixture
def queue(proxy: Proxy, open_client: Open, queue_name: str, clock: Shifted) -> Queue:
    """A queue behind the proxy, with one sequence in use."""
    queue = open_client(proxy.url, clock=clock).queue(queue_name, streams=4)
    queue.write("first", shard_key="t")
    return queue


def sequences(server: Server, queue: Queue) -> list[str]:
    """The sequences that are remembered."""
    found = server.run("ZRANGEBYSCORE", queue.state.keys.producers, 0, 10**15)
    kept = [name for name in server.run("HKEYS", queue.state.keys.meta) if name.startswith(b"p:")]
    assert sorted(kept) == sorted(found)
    return [each.decode() for each in found]


def lasting(server: Server, queue: Queue) -> float:
    """Seconds for which the newest sequence is remembered."""
    ends = server.run(
        "ZRANGE", queue.state.keys.producers, "9000000000000", "0", "BYSCORE", "REV", "LIMIT", 0, 1, "WITHSCORES"
    )
    return float(ends[1]) / 1000 - int(server.run("TIME")[0])


def forget(server: Server, queue: Queue) -> None:
    """Forget all sequences, as when their time is over."""
    for sequence in server.run("ZRANGEBYSCORE", queue.state.keys.producers, 0, 10**15):
        server.run("HDEL", queue.state.keys.meta, sequence)
        server.run("ZREM", queue.state.keys.producers, sequence)


def test_a_write_is_not_repeated_when_it_may_be_forgotten(
    queue: Queue, proxy: Proxy, server: Server, clock: Shifted
) -> None:
    """However much time its caller gives it: it is stored, and a repetition would store it again."""
    sha = on_the_wire("write")
    first, _ = proxy.cut_after_request(sha), [proxy.cut_before_request(sha) for _ in range(1000)]
    with ThreadPoolExecutor() as pool:
        writing = pool.submit(queue.write, "second", shard_key="t", timeout=WEEK)
        assert first.struck.wait(30)
        forget(server, queue)
        clock.by = HOUR + 1
        try:
            with pytest.raises(OutcomeUnknown, match="may have happened"):
                writing.result(30)
        finally:
            proxy.heal()
    with Client.from_url(server.url) as other:
        assert sorted(each.payload for each in other.queue(queue.name, create=True).read_many(10)) == [
            "first",
            "second",
        ]


def test_a_write_that_certainly_did_not_happen_is_tried_for_all_its_time(
    queue: Queue, server: Server, clock: Shifted
) -> None:
    server.run("CONFIG", "SET", "min-replicas-to-write", 1)
    with ThreadPoolExecutor() as pool:
        passed = refused(server)
        writing = pool.submit(queue.write, "second", shard_key="t", timeout=WEEK)
        eventually(lambda: refused(server) > passed)
        clock.by = 100 * HOUR
        passed = refused(server)
        eventually(lambda: refused(server) > passed or writing.done())
        server.run("CONFIG", "SET", "min-replicas-to-write", 0)
        assert writing.result()
    assert queue.len() == 2


def refused(server: Server) -> int:
    """How many calls the server refused."""
    return sum(
        each.get("rejected_calls", 0) + each.get("failed_calls", 0) for each in server.info("commandstats").values()
    )


@pytest.mark.parametrize(("timeout", "most"), [(None, 260), (600, 1440), (WEEK, 2 * 3720)])
def test_a_lane_is_remembered_for_as_long_as_its_call_may_come_and_not_for_hours(
    queue: Queue, server: Server, timeout: float | None, most: float
) -> None:
    queue.write("second", shard_key="t", timeout=timeout)
    assert most / 2 - 30 < lasting(server, queue) < most + 30
    for number in range(20):
        queue.write(number, shard_key="t")
    assert lasting(server, queue) > 100


def test_rows_are_not_repeated_when_their_tally_may_be_forgotten(
    proxy: Proxy, server: Server, queue_name: str, clock: Shifted
) -> None:
    sha, offset = on_the_wire("write"), BulkOffset("w", "0", remember=120)
    with Client.from_url(proxy.url, timeout=HOUR, clock=clock) as client:
        queue = client.queue(queue_name, streams=4)
        queue.read_many(1)
        first, _ = proxy.cut_after_request(sha), [proxy.cut_before_request(sha) for _ in range(1000)]
        with ThreadPoolExecutor() as pool:
            rows = Rows([b"t"] * 3, "b", [b"0", b"1", b"2"])
            storing = pool.submit(client.run, store_rows(queue.state, offset, 0, rows, RowPace()))
            assert first.struck.wait(30)
            server.run("HDEL", queue.state.keys.dedup, offset.field)
            server.run("ZREM", queue.state.keys.bulk_offsets, offset.field)
            clock.by = 121
            try:
                with pytest.raises(OutcomeUnknown, match="may be stored"):
                    storing.result(30)
            finally:
                proxy.heal()
    with Client.from_url(server.url) as other:
        assert other.queue(queue_name, create=True).len() == 3


def test_a_refusal_after_a_try_that_may_have_happened_does_not_say_that_nothing_was_written(
    queue: Queue, proxy: Proxy, server: Server
) -> None:
    """Whoever believes that would write it again."""
    body, sha = b"x" * 100_000, on_the_wire("write")
    queue.write(body, shard_key="t")
    first, _ = proxy.cut_after_request(sha), [proxy.cut_before_request(sha) for _ in range(1000)]
    with ThreadPoolExecutor() as pool:
        writing = pool.submit(queue.write, body, shard_key="t")
        assert first.struck.wait(30)
        server.run("CONFIG", "SET", "maxmemory", 1_000_000)
        proxy.heal()
        with pytest.raises(OutcomeUnknown, match=r"may have happened; now Redis refused it: OOM"):
            writing.result()
    with pytest.raises(OutOfMemory, match="nothing was written"):
        queue.write(body, shard_key="t")
    assert queue.len() == 3


# --- the bound -----------------------------------------------------------------------------------------------------


@pytest.fixture
def crowded(mutate: Mutate, server: Server, queue_name: str) -> Iterator[Queue]:
    """A queue that remembers three sequences at most, and has them."""
    mutate("producers", "MAX_SEQUENCES = 100000", "MAX_SEQUENCES = 3")
    with contextlib.ExitStack() as stack:
        queues = [stack.enter_context(Client.from_url(server.url)).queue(queue_name, streams=4) for _ in range(3)]
        for queue in queues:
            queue.write("old", shard_key="t")
        yield queues[0]


def test_newcomers_beyond_the_bound_write_and_are_not_remembered(
    crowded: Queue, server: Server, open_client: Open
) -> None:
    known = sequences(server, crowded)
    assert len(known) == 3
    for _ in range(5):
        newcomer = open_client(server.url).queue(crowded.name, create=True)
        newcomer.write("new", shard_key="t")
        newcomer.write_many([("new", "t")] * 3)
    crowded.write("old", shard_key="t")
    assert sequences(server, crowded) == known
    assert crowded.len() == 3 + 5 * 4 + 1


def test_a_newcomers_write_is_not_repeated_when_its_answer_is_lost(
    crowded: Queue, server: Server, proxy: Proxy, open_client: Open
) -> None:
    newcomer = open_client(proxy.url).queue(crowded.name, create=True)
    cut = proxy.cut_after_request(on_the_wire("write"), skip=1)  # the first is refused for want of room
    with pytest.raises(OutcomeUnknown):
        newcomer.write("new", shard_key="t")
    assert cut.struck.wait(30)
    assert crowded.len() == 4


def test_a_newcomer_whose_first_answer_is_lost_does_not_write_without_being_remembered(
    crowded: Queue, proxy: Proxy, open_client: Open
) -> None:
    """That try may be under way, and come when there is room."""
    newcomer = open_client(proxy.url).queue(crowded.name, create=True)
    copies, cut = proxy.copies(on_the_wire("write")), proxy.cut_before_request(on_the_wire("write"))
    with pytest.raises(OutcomeUnknown, match="too many writers"):
        newcomer.write("new", shard_key="t")
    assert cut.struck.wait(30)
    crowded.write("old", shard_key="t")
    assert crowded.len() == 4
    assert len(copies) == 2


def test_a_newcomer_replaces_and_is_not_remembered(
    crowded: Queue, server: Server, proxy: Proxy, open_client: Open
) -> None:
    known = sequences(server, crowded)
    newcomer = open_client(proxy.url).queue(crowded.name, create=True)
    first = newcomer.write("first", shard_key="t", unique_key="k")
    assert newcomer.write("second", shard_key="t", unique_key="k", on_conflict="replace") == first
    cut = proxy.cut_after_request(on_the_wire("replace"), skip=1)  # the first is refused for want of room
    with pytest.raises(OutcomeUnknown):
        newcomer.write("third", shard_key="t", unique_key="k", on_conflict="replace")
    assert cut.struck.wait(30)
    assert sequences(server, crowded) == known
    assert [each.payload for each in crowded.read_many(9)].count("third") == 1


def test_a_writer_who_is_remembered_is_so_at_the_bound(
    crowded: Queue, server: Server, proxy: Proxy, open_client: Open
) -> None:
    forget(server, crowded)
    writer = open_client(proxy.url).queue(crowded.name, create=True)
    writer.write("known", shard_key="t")
    for _ in range(4):
        open_client(server.url).queue(crowded.name, create=True).write("new", shard_key="t")
    assert len(sequences(server, crowded)) == 3
    cut = proxy.cut_after_request(on_the_wire("write"))
    writer.write("known", shard_key="t")
    assert cut.struck.wait(30)
    assert crowded.len() == 3 + 2 + 4


def test_sequences_whose_time_is_over_make_room(crowded: Queue, server: Server, open_client: Open) -> None:
    old = sequences(server, crowded)
    for sequence in old:
        server.run("ZADD", crowded.state.keys.producers, 1, sequence)
    newcomer = open_client(server.url).queue(crowded.name, create=True)
    newcomer.write("new", shard_key="t")
    found: Any = sequences(server, crowded)
    assert len(found) == 1
    assert not set(found) & set(old)
