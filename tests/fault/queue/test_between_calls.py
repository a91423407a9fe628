"""Faults between the calls of an operation that makes several: what its caller is told is what has happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from shardq import (
    BackendError,
    BackendTimeout,
    Client,
    Limits,
    Message,
    OutcomeUnknown,
    OutOfMemory,
    PartlyDone,
    PartlyWritten,
    Queue,
    ShardqError,
    Written,
)
from tests.fault.conftest import Open
from tests.fault.sharing.test_coalescing import meet
from tests.proxy import Proxy, on_the_wire
from tests.servers import Server, ServerKind

NOWHERE = "redis://127.0.0.1:1"
SOON = 0.2
"""Seconds after which a call gives up. On a busy machine one may do so by itself: what it tells must be true, too."""
NEWER = Message("newer", "tenant", unique_key="k", on_conflict="replace")

Fault = Callable[[Server, Queue], object]


def kill(server: Server, queue: Queue) -> None:
    server.kill9()


def fill(server: Server, queue: Queue) -> None:
    server.run("CONFIG", "SET", "maxmemory", "1")


def refuse(server: Server, queue: Queue) -> None:
    """Another program writes to a key that only replacements use."""
    server.run("SET", queue.state.keys.moved, "of another type")


def mend(server: Server, queue: Queue) -> None:
    server.start()
    server.run("CONFIG", "SET", "maxmemory", "0")
    if server.run("TYPE", queue.state.keys.moved) == b"string":
        server.run("DEL", queue.state.keys.moved)


FAULTS: dict[str, tuple[Fault, tuple[type[BackendError], ...]]] = {
    "killed": (kill, (BackendTimeout, OutcomeUnknown)),
    "full": (fill, (OutOfMemory,)),
    "refusing": (refuse, (BackendError,)),
}


@pytest.fixture
def kept(kind: ServerKind | None, tmp_path: Path) -> Iterator[Server]:
    """A server that has all that it answered when it is started again."""
    with Server(kind, directory=tmp_path / "server") as server:
        yield server


@pytest.fixture(params=FAULTS)
def fault(request: pytest.FixtureRequest) -> tuple[Fault, tuple[type[BackendError], ...]]:
    return FAULTS[request.param]


def payloads(server: Server, queue: Queue) -> Counter[Any]:
    """All that the queue holds."""
    with Client.from_url(server.url) as client:
        whole = client.queue(queue.name)
        return Counter(
            [each.payload for each in whole.read_many(100)]
            + [each.payload for each in whole.peek(state="delayed", payloads=True).messages]
        )


def strike(proxy: Proxy, server: Server, queue: Queue, fault: Fault) -> None:
    """The fault comes when the 20 messages are stored, and the replacement is on its way."""
    proxy.before_request(on_the_wire("replace"), lambda: fault(server, queue))


def made(client: Client, name: str) -> Queue:
    queue = client.queue(name, streams=2, streams_per_shard=1, window=0)
    queue.write("held", shard_key="tenant", delay=3600, unique_key="k")
    return queue


@pytest.mark.once
def test_one_call_tells_of_each_message_what_became_of_it(
    kept: Server, open_client: Open, queue_name: str, fault: tuple[Fault, tuple[type[BackendError], ...]]
) -> None:
    with Proxy(kept.url) as proxy:
        queue = made(open_client(proxy.url, timeout=2), queue_name)
        strike(proxy, kept, queue, fault[0])
        with pytest.raises(PartlyWritten) as told:
            queue.write_many([*((n, "tenant") for n in range(20)), NEWER])
        mend(kept, queue)
        *stored, replaced = told.value.results
        assert [type(each) for each in stored] == [Written] * 20
        assert type(replaced) in fault[1]
        assert payloads(kept, queue) == Counter([*range(20), "held"])


@pytest.mark.once
def test_those_who_share_a_call_are_told_each_what_became_of_theirs(
    kept: Server, open_client: Open, queue_name: str, fault: tuple[Fault, tuple[type[BackendError], ...]]
) -> None:
    with Proxy(kept.url) as proxy, ThreadPoolExecutor(21) as pool:
        queue = made(open_client(proxy.url, timeout=3), queue_name)
        calls: list[Callable[[], Any]] = [lambda n=n: queue.write(n, shard_key="tenant") for n in range(20)]  # type: ignore[misc]
        calls.insert(7, lambda: queue.write("newer", shard_key="tenant", unique_key="k", on_conflict="replace"))
        strike(proxy, kept, queue, fault[0])
        proxy.blackhole()
        futures = meet(queue, pool, calls)
        proxy.pass_on()
        results = [each.result(60) for each in futures]
        mend(kept, queue)
        assert type(results.pop(7)) in fault[1]
        # Most share the replacement's call. Who comes later finds the server as it is by then.
        kinds = [type(each) for each in results]
        assert set(kinds) <= {Written, *fault[1]}
        assert kinds.count(Written) > 1
        stored = payloads(kept, queue)
        assert stored == Counter(stored.keys())
        assert stored.keys() >= {"held", *(n for n, kind in enumerate(kinds) if kind is Written)}
        assert not stored.keys() & {
            "newer",
            *(n for n, kind in enumerate(kinds) if kind not in (Written, OutcomeUnknown)),
        }


# The same for every operation that makes several calls: from one of them on, nothing reaches the server. `done` says
# how much of the whole has happened.


class Compound:
    """An operation of several calls, and how far it is."""

    def __init__(self, whole: int, call: Callable[[], object], done: Callable[[], int]) -> None:
        self.whole, self.call, self.done = whole, call, done


def write_many(queue: Queue, known: Queue) -> Compound:
    messages = [(n, f"t{n % 7}") for n in range(600)]
    return Compound(600, lambda: queue.write_many(messages), known.len)


def redrive(queue: Queue, known: Queue) -> Compound:
    bury(known, 250)
    letters = known.dead(250)
    return Compound(250, lambda: queue.redrive(letters), lambda: 250 - known.stats().dead)


def delete_dead(queue: Queue, known: Queue) -> Compound:
    bury(known, 250)
    return Compound(250, lambda: queue.delete_dead(older_than=0), lambda: 250 - known.stats().dead)


def purge(queue: Queue, known: Queue) -> Compound:
    known.write_many([(n, "t") for n in range(600)])
    return Compound(600, queue.purge, lambda: 600 - known.len())


def set_limits(queue: Queue, known: Queue) -> Compound:
    changes: dict[str | bytes, Limits] = {f"t{n}": Limits(rate=5) for n in range(120)}
    return Compound(120, lambda: queue.set_limits(changes), lambda: len(known.limits()))


def configure(queue: Queue, known: Queue) -> Compound:
    return Compound(1, lambda: queue.configure(max_in_flight=9), lambda: known.settings().max_in_flight == 9)


def resize(queue: Queue, known: Queue) -> Compound:
    return Compound(1, lambda: queue.resize(8), lambda: known.settings().streams == 8)


def delete(queue: Queue, known: Queue) -> Compound:
    return Compound(1, lambda: queue.delete(expected=None), lambda: not _exists(known))


def set_weights(queue: Queue, known: Queue) -> Compound:
    return Compound(1, lambda: queue.set_weights({"a": 3}), lambda: len(known.weights()))


def assign(queue: Queue, known: Queue) -> Compound:
    return Compound(1, lambda: queue.assign(["a"]), lambda: len(known.assignment()))


def bind_many(queue: Queue, known: Queue) -> Compound:
    bindings = [(f"p{n}.*", queue.name) for n in range(2500)]
    router = queue.name
    return Compound(
        2500, lambda: queue.client.bind_many(bindings, router=router), lambda: len(known.client.router(router))
    )


def ack_many(queue: Queue, known: Queue) -> Compound:
    known.write_many([(n, f"t{n % 7}") for n in range(450)])
    found = queue.read_many(450)
    return Compound(450, lambda: queue.ack_many(found), lambda: known.stats().acked)


def _exists(queue: Queue) -> bool:
    try:
        queue.settings()
    except ShardqError:
        return False
    return True


def bury(queue: Queue, count: int) -> None:
    queue.write_many([(n, "t") for n in range(count)])
    queue.reject_many(queue.read_many(count), "no good")


COMPOUNDS = (
    write_many, redrive, delete_dead, purge, set_limits, configure, resize, delete, set_weights, assign, bind_many,
    ack_many,
)  # fmt: skip


def told_done(error: ShardqError | None, whole: int) -> range:
    """How much may have happened, by what the caller was told."""
    match error:
        case None:
            done, unknown = whole, 0
        case PartlyWritten():
            done = sum(isinstance(each, Written) for each in error.results)
            unknown = sum(isinstance(each, OutcomeUnknown) for each in error.results)
        case PartlyDone():
            done = error.done
            unknown = whole - done if isinstance(error.__cause__, OutcomeUnknown) else 0
        case _:
            done, unknown = 0, whole if isinstance(error, OutcomeUnknown) else 0
    return range(done, done + unknown + 1)


@pytest.mark.runs_in("test-all")
@pytest.mark.once
@pytest.mark.parametrize("make", COMPOUNDS, ids=lambda each: each.__name__)
def test_a_call_that_fails_speaks_only_for_what_did_not_happen(
    server: Server, proxy: Proxy, open_client: Open, queue_name: str, make: Callable[[Queue, Queue], Compound]
) -> None:
    with Client.from_url(server.url) as client:
        for skip in range(100):
            name = f"{queue_name}.{skip}"
            known = client.queue(name, streams=4, max_dead=1000)
            queue = open_client(proxy.url).queue(name, streams=4, max_dead=1000)
            known.write(0, shard_key="0")
            known.ack_many(known.read_many(1))
            queue.stats()
            compound = make(queue, known)
            before = compound.done()
            queue.state.timeout = queue.client.router_state(name).timeout = SOON
            error: ShardqError | None = None
            proxy.before_request(b"FCALL", lambda: proxy.lead_to(NOWHERE), skip=skip)
            try:
                compound.call()
            except ShardqError as raised:
                error = raised
            proxy.lead_to(server.url)
            proxy.heal()
            assert compound.done() - before in told_done(error, compound.whole), (skip, error)
            if error is None:
                assert skip > 0, "nothing was ever cut"
                return
    pytest.fail("it makes a hundred calls")
