"""Callers that share calls: each keeps its own deadline, result and error, whatever happens to the others."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from shardq import (
    AsyncClient,
    BackendError,
    BackendTimeout,
    Client,
    ClosedError,
    DurabilityUnknown,
    OutcomeUnknown,
    Queue,
    QueueFull,
    ShardqError,
)
from shardq.drivers.sharing import MAX_CALLS_UNDER_WAY
from shardq.ops.settle.command import MAX_ACKS_A_CALL, MAX_MOVES_A_CALL
from tests.fault.client.test_forks import bounded
from tests.fault.client.test_processes import child
from tests.fault.conftest import Open
from tests.proxy import Proxy, on_the_wire
from tests.servers import Server
from tests.waiting import eventually

THREADS = 16
CONNECTING = 6.0
"""Making a connection to a server that hangs can add 5 s to a caller's time."""


@pytest.fixture
def queue(proxy: Proxy, open_client: Open, queue_name: str) -> Queue:
    """A queue behind the proxy, which its client knows already."""
    queue = open_client(proxy.url).queue(queue_name, streams=2, streams_per_shard=1)
    queue.write("-", shard_key="-")
    queue.read().ack()
    return queue


def ended(call: Callable[[], Any]) -> Any:
    """What *call* returns, or the error that it raises."""
    try:
        return call()
    except ShardqError as error:
        return error


def waiting(queue: Queue, verb: str = "write") -> int:
    """How many callers of *verb* are here: in a call, or waiting for one."""
    coalescer = queue.state.coalescers[verb]
    return (
        int(coalescer.calls)
        + len(coalescer._waiting)
        + sum(len(shared.callers) - 1 for shared in list(coalescer.shared))
    )


def callers(queue: Queue, verb: str) -> set[Any]:
    """Those who wait for a call of *verb*, or are in one. They are held, so none is mistaken for a later one."""
    coalescer = queue.state.coalescers[verb]
    return {*list(coalescer._waiting), *(caller for each in list(coalescer.shared) for caller in list(each.callers))}


def meet(
    queue: Queue, pool: ThreadPoolExecutor, calls: Sequence[Callable[[], Any]], verb: str = "write"
) -> list[Future[Any]]:
    """Start *calls*, one after the other has come: the first one goes out, and the others wait for the next call."""
    return meet_more(queue, pool, [], calls, verb)


def meet_more(
    queue: Queue,
    pool: ThreadPoolExecutor,
    here: Sequence[Future[Any]],
    calls: Sequence[Callable[[], Any]],
    verb: str = "write",
) -> list[Future[Any]]:
    """As `meet`, while the callers of *here* wait, too. Return those and the new ones."""
    futures = list(here)
    for call in calls:
        before, is_first = callers(queue, verb), not waiting(queue, verb)
        futures.append(latest := pool.submit(ended, call))

        def has_come(latest: Future[Any] = latest, before: set[Any] = before, is_first: bool = is_first) -> bool:
            # One with little time may have come and gone before anybody looked. How many are here says nothing: one
            # whose try got no answer for some seconds goes on elsewhere.
            come = waiting(queue, verb) if is_first else callers(queue, verb) - before
            return latest.done() or bool(come)

        eventually(has_come, what="the caller has come")
    return futures


def rising_runs(numbers: Sequence[int]) -> int:
    """Of how many pieces, each in rising order, *numbers* are."""
    return 1 + sum(after < before for before, after in pairwise(numbers))


def written(queue: Queue, text: Any, key: str = "tenant", **settings: Any) -> Callable[[], Any]:
    return lambda: queue.write(text, shard_key=key, **settings)


@pytest.mark.everywhere
def test_those_who_wait_share_the_next_call_in_their_order(proxy: Proxy, queue: Queue) -> None:
    sent = proxy.copies(b"FCALL")
    with ThreadPoolExecutor(THREADS) as pool:
        proxy.blackhole()
        futures = meet(queue, pool, [written(queue, n) for n in range(THREADS)])
        proxy.heal()
        ids = [future.result(60) for future in futures]
    assert len(set(ids)) == THREADS
    assert len(sent) <= MAX_CALLS_UNDER_WAY + 2  # the last two are for those who waited, and may overtake each other
    found = queue.read_many(THREADS)
    assert {each.message_id: each.payload for each in found} == dict(zip(ids, range(THREADS), strict=True))
    assert rising_runs([each.payload for each in found]) <= len(sent)


@pytest.mark.runs_in("test-all")
@pytest.mark.once
def test_each_caller_ends_at_its_own_time(proxy: Proxy, queue: Queue) -> None:
    timeouts = [1.5, 0.3, 0.6, 3.0, 0.9]
    spent: dict[float, float] = {}

    def timed(timeout: float) -> Any:
        began = time.monotonic()
        try:
            return queue.write("late", shard_key="tenant", timeout=timeout)
        finally:
            spent[timeout] = time.monotonic() - began

    with ThreadPoolExecutor(THREADS) as pool:
        proxy.blackhole()
        futures = meet(queue, pool, [lambda timeout=timeout: timed(timeout) for timeout in timeouts])  # type: ignore[misc]
        errors = [future.result(60) for future in futures]
        proxy.heal()
    assert {type(error) for error in errors} <= {BackendTimeout, OutcomeUnknown}
    assert len({id(error) for error in errors}) == len(errors)
    for timeout in timeouts:
        assert timeout * 0.9 < spent[timeout] < timeout + CONNECTING


def test_the_call_of_a_caller_whose_time_is_up_goes_on_for_the_others(proxy: Proxy, queue: Queue) -> None:
    """It is the same call with the same number, so what its first try stored is not stored again."""
    with ThreadPoolExecutor(THREADS) as pool:
        proxy.blackhole()
        futures = meet(queue, pool, [written(queue, 0, timeout=30)])
        futures = meet_more(queue, pool, futures, [written(queue, 1, timeout=4), written(queue, 2, timeout=60)])
        cut = proxy.cut_after_request(b"FCALL", skip=1)
        open_but_for(proxy)
        assert cut.struck.wait(60)
        results = [future.result(60) for future in futures]
    assert all(isinstance(result, str) for result in results)
    assert sorted(each.payload for each in queue.read_many(10)) == [0, 1, 2]


def open_but_for(proxy: Proxy) -> None:
    """Let the link pass again, with its cuts."""
    proxy._prompt.set()
    proxy._open.set()


def test_a_bad_message_harms_no_other(proxy: Proxy, server: Server, queue: Queue) -> None:
    """A stream of another type refuses only the messages that may go nowhere else."""
    keys: dict[int, str] = {}
    for number in range(100):
        keys.setdefault(queue.state.shard(f"t{number}")[0], f"t{number}")
    key = queue.state.keys.stream(0)
    with ThreadPoolExecutor(THREADS) as pool:
        proxy.blackhole()
        calls = [written(queue, n, keys[n % 2]) for n in range(THREADS)]
        server.run("DEL", key)
        server.run("SET", key, "not a stream")
        futures = meet(queue, pool, calls)
        proxy.heal()
        results = [future.result(60) for future in futures]
    server.run("DEL", key)
    assert {type(result) for result in results[0::2]} == {BackendError}
    assert all(isinstance(result, str) for result in results[1::2])


def test_a_full_queue_takes_what_it_has_room_for(proxy: Proxy, open_client: Open, queue_name: str) -> None:
    queue = open_client(proxy.url).queue(f"{queue_name}.full", streams=2, max_len=8)
    queue.write("-", shard_key="-")
    with ThreadPoolExecutor(THREADS) as pool:
        proxy.blackhole()
        futures = meet(queue, pool, [written(queue, n) for n in range(THREADS)])
        proxy.heal()
        results = [future.result(60) for future in futures]
    assert sum(isinstance(result, str) for result in results) == 6
    assert sum(isinstance(result, QueueFull) for result in results) == THREADS - 6


def test_too_few_replicas_are_told_to_each(server: Server, open_client: Open, queue_name: str) -> None:
    queue = open_client(server.url, durability="replica(1)", timeout=0.5).queue(queue_name, streams=2)
    with ThreadPoolExecutor(THREADS) as pool:
        futures = [pool.submit(ended, written(queue, n, timeout=20)) for n in range(4)]
        errors = [future.result(60) for future in futures]
    assert {type(error) for error in errors} == {DurabilityUnknown}
    assert len({error.result for error in errors}) == 4


def test_a_delivery_that_two_callers_ack_is_acked_once(proxy: Proxy, queue: Queue) -> None:
    for n in range(6):
        queue.write(n, shard_key="tenant")
    deliveries = queue.read_many(6)
    queue.nack_many([])
    with ThreadPoolExecutor(THREADS) as pool:
        deliveries[0].ack()
        proxy.blackhole()
        calls = [each.ack for each in (*deliveries[1:], *deliveries[1:])]
        futures = meet(queue, pool, calls, "ack")
        proxy.heal()
        results = [future.result(60) for future in futures]
    for pair in zip(results[:5], results[5:], strict=True):
        assert sorted(type(result).__name__ for result in pair) == ["LeaseLost", "NoneType"]
    assert queue.stats().in_flight == 0


def warmed(queue: Queue, proxy: Proxy, pool: ThreadPoolExecutor) -> None:
    """Let the client have connections enough, so that what it sends next is sent at once."""
    proxy.delay(0.2)
    list(pool.map(lambda _: queue.len(), range(MAX_CALLS_UNDER_WAY + 1)))
    proxy.heal()


@pytest.mark.runs_in("test-all")
def test_an_ack_that_shared_a_call_without_an_answer_may_be_given_again(proxy: Proxy, queue: Queue) -> None:
    """As after a single ack: the second one is a repetition, and is not told that the lease was lost."""
    queue.write_many([(n, "tenant") for n in range(4)])
    deliveries = queue.read_many(4)
    with ThreadPoolExecutor(THREADS) as pool:
        deliveries[0].ack()
        warmed(queue, proxy, pool)
        proxy.blackhole()
        timeouts = [60, 60, 0.5]
        calls = [lambda each=each, left=left: each.ack(timeout=left) for each, left in zip(deliveries[1:], timeouts)]  # noqa: B905
        futures = meet(queue, pool, calls, "ack")
        assert isinstance(futures[2].result(60), OutcomeUnknown)
        proxy.heal()
        assert [future.result(60) for future in futures[:2]] == [None, None]
    eventually(lambda: queue.stats().in_flight == 0)
    assert len(queue.state.unsure) == 1
    deliveries[3].ack()
    assert not queue.state.unsure
    assert not any(each.lost for each in deliveries)


@pytest.mark.once
def test_who_gives_up_before_a_shared_call_is_sent_knows_that_nothing_happened(proxy: Proxy, queue: Queue) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        proxy.drop()
        proxy.blackhole()
        futures = meet(queue, pool, [written(queue, n, timeout=30) for n in range(2)])
        futures = meet_more(queue, pool, futures, [written(queue, 2, timeout=0.4)])
        error = futures[2].result(60)
        proxy.heal()
        assert all(isinstance(future.result(60), str) for future in futures[:2])
    stored = sorted(each.payload for each in queue.read_many(10))
    assert stored == [0, 1]
    assert type(error) is BackendTimeout


def test_leases_that_were_settled_by_a_shared_call_are_not_in_the_wheel(proxy: Proxy, queue: Queue) -> None:
    queue.write_many([(n, "tenant") for n in range(THREADS)])
    deliveries = queue.read_many(THREADS, visibility_timeout=30)
    leases = [each._lease for each in deliveries]
    assert all(lease.pending for lease in leases)
    with ThreadPoolExecutor(THREADS) as pool:
        proxy.blackhole()
        futures = meet(queue, pool, [each.ack for each in deliveries], "ack")
        proxy.heal()
        assert [future.result(60) for future in futures] == [None] * THREADS
    assert not any(lease.pending for lease in leases)
    assert not any(each.lost for each in deliveries)


@pytest.mark.parametrize("verb", ["ack_many", "nack_many", "reject_many"])
def test_what_was_settled_before_a_failure_is_not_in_the_wheel(
    server: Server, proxy: Proxy, open_client: Open, queue_name: str, verb: str
) -> None:
    """Many deliveries take several calls. The first one settles what lies in stream 0, the second one is refused."""
    queue = open_client(proxy.url).queue(f"{queue_name}.{verb}", streams=2, streams_per_shard=1, window=0)
    queue.write("-", shard_key="-")
    queue.read().ack()
    keys = {queue.state.shard(f"t{number}")[0]: f"t{number}" for number in range(100)}
    queue.write_many([*((n, keys[0]) for n in range(200)), *((n, keys[1]) for n in range(50))])
    deliveries = sorted(everything(queue), key=lambda each: each.received.token.split(":")[0])
    leases = queue.state.keys.leases

    def refuse() -> None:
        server.run("DEL", leases)
        server.run("SET", leases, "of another type")

    proxy.before_request(on_the_wire("ack"), refuse, skip=1)
    settle = getattr(queue, verb)
    with pytest.raises(BackendError):
        settle(deliveries, "why") if verb == "reject_many" else settle(deliveries)
    server.run("DEL", leases)
    pending = [each._lease.pending for each in deliveries]
    settled = MAX_ACKS_A_CALL if verb == "ack_many" else MAX_MOVES_A_CALL
    assert pending == [False] * settled + [True] * (250 - settled)


def test_terms_of_nacks_are_each_callers_own(proxy: Proxy, queue: Queue) -> None:
    for n in range(8):
        queue.write(n, shard_key="tenant")
    deliveries = queue.read_many(8)
    deliveries[0].nack(error="0")
    with ThreadPoolExecutor(THREADS) as pool:
        proxy.blackhole()
        calls = [lambda each=each: each.nack(error=str(each.payload)) for each in deliveries[1:]]
        futures = meet(queue, pool, calls, "nack")
        proxy.heal()
        assert [future.result(60) for future in futures] == [True] * 7
    again = queue.read_many(8)
    assert [each.last_error for each in again] == [str(each.payload) for each in again]


@pytest.mark.everywhere
def test_close_ends_all_who_wait(proxy: Proxy, queue: Queue) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        proxy.blackhole()
        futures = meet(queue, pool, [written(queue, n) for n in range(THREADS)])
        began = time.monotonic()
        queue.client.close()
        errors = [future.result(60) for future in futures]
        assert time.monotonic() - began < 10
        proxy.heal()
    assert {type(error) for error in errors} <= {ClosedError, OutcomeUnknown}
    assert ClosedError in {type(error) for error in errors}


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_has_none_of_its_parents_callers(proxy: Proxy, queue_name: str) -> None:
    with Client.from_url(proxy.url, timeout=60) as client, ThreadPoolExecutor(THREADS) as pool:
        queue = client.queue(queue_name, streams=2)
        queue.write("-", shard_key="-")
        proxy.blackhole()
        futures = meet(queue, pool, [written(queue, n) for n in range(6)])
        assert child(bounded(lambda: waiting_in_child(queue))) == "0"
        proxy.heal()
        assert all(isinstance(future.result(60), str) for future in futures)
        assert child(bounded(lambda: queue.write("the child's", shard_key="tenant"))).count("-") == 2
    with Client.from_url(proxy.url) as client:
        assert len(client.queue(queue_name, create=True).read_many(20)) == 8


def waiting_in_child(queue: Queue) -> str:
    return str(sum(waiting(queue, verb) for verb in queue.state.coalescers))


@pytest.mark.everywhere
def test_cancelling_a_caller_cancels_only_its_own_wait(proxy: Proxy, queue_name: str) -> None:
    async def main() -> None:
        async with AsyncClient.from_url(proxy.url, timeout=60) as client:
            queue = client.queue(queue_name, streams=2)
            await queue.write("-", shard_key="-")
            await (await queue.read()).ack()
            proxy.blackhole()
            tasks = [asyncio.ensure_future(queue.write(n, shard_key="tenant")) for n in range(20)]
            await asyncio.sleep(0.05)
            later = [asyncio.ensure_future(queue.write(n, shard_key="tenant")) for n in range(20, 40)]
            await asyncio.sleep(0)
            for task in (*tasks[1::2], *later[::2]):
                task.cancel()
            await asyncio.sleep(0)
            assert all(task.done() == (at % 2 == 1) for at, task in enumerate(tasks))
            proxy.heal()
            results = await asyncio.gather(*tasks, *later, return_exceptions=True)
            ids = {result for result in results if isinstance(result, str)}
            assert len(ids) == 20
            assert ids <= {each.message_id for each in await queue.read_many(100)}

    asyncio.run(main())


def test_a_late_task_does_not_wait_for_calls_that_hang(proxy: Proxy, queue_name: str) -> None:
    async def main() -> None:
        async with AsyncClient.from_url(proxy.url, timeout=60) as client:
            queue = client.queue(queue_name, streams=2)
            await queue.write("-", shard_key="-")
            coalescer = queue.state.coalescers["write"]

            async def are_made(calls: int) -> None:
                async with asyncio.timeout(30):
                    while coalescer.calls < calls:  # noqa: ASYNC110 (a call is no event)
                        await asyncio.sleep(0.01)

            proxy.blackhole()
            tasks = [asyncio.ensure_future(queue.write(n, shard_key="tenant")) for n in range(21)]
            await are_made(2)  # that of the first one, and that of all others
            late = asyncio.ensure_future(queue.write(21, shard_key="tenant"))
            await are_made(3)
            proxy.heal()
            assert len({*await asyncio.gather(*tasks, late)}) == 22

    asyncio.run(main())


class Breaker:
    """A link that breaks all the time, as long as the block runs."""

    def __init__(self, proxy: Proxy, seed: int) -> None:
        self._proxy, self._chance, self._over = proxy, random.Random(seed), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._proxy.heal()

    def _run(self) -> None:
        while not self._over.wait(self._chance.uniform(0.002, 0.03)):
            if self._chance.random() < 0.3:
                self._proxy.drop()
            elif not self._proxy._cuts:  # not so many that nothing comes through
                cut = self._chance.choice([self._proxy.cut_after_request, self._proxy.cut_before_request])
                cut(b"FCALL", skip=self._chance.randrange(6))


def everything(queue: Queue) -> list[Any]:
    found: list[Any] = []
    while more := queue.read_many(100):
        found += more
    return found


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("seed", range(2))
def test_each_write_is_stored_once_while_links_break_and_time_runs_out(
    proxy: Proxy, server: Server, queue: Queue, seed: int
) -> None:
    told: dict[int, Any] = {}
    chance = random.Random(seed)
    timeouts = [chance.choice([0.0, 0.05, 0.3, 20.0]) for _ in range(THREADS * 25)]

    def write_some(at: int) -> None:
        for number in range(at, THREADS * 25, THREADS):
            told[number] = ended(written(queue, number, f"t{number % 7}", timeout=timeouts[number]))

    with ThreadPoolExecutor(THREADS) as pool, Breaker(proxy, seed):
        list(pool.map(write_some, range(THREADS)))
    with Client.from_url(server.url) as client:
        stored = Counter(each.payload for each in everything(client.queue(queue.name, create=True)))
    assert not stored or max(stored.values()) == 1
    for number, result in told.items():
        if isinstance(result, str):
            assert stored[number] == 1, f"{number} was lost"
        elif not isinstance(result, OutcomeUnknown):
            assert isinstance(result, BackendTimeout)
            assert not stored[number], f"{number} was stored, but {result}"
    assert sum(isinstance(result, str) for result in told.values()) > THREADS * 5


@pytest.mark.parametrize("seed", range(2))
def test_each_ack_counts_while_links_break(proxy: Proxy, queue: Queue, seed: int) -> None:
    queue.write_many([(number, f"t{number % 7}") for number in range(300)])
    deliveries = everything(queue)
    with ThreadPoolExecutor(THREADS) as pool, Breaker(proxy, seed):
        results = list(pool.map(lambda each: ended(lambda: each.ack(timeout=60)), deliveries))
    assert results == [None] * 300
    stats = queue.stats()
    assert (stats.backlog, stats.in_flight) == (0, 0)
