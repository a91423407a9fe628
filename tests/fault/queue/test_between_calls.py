"""Faults between the calls of an operation that makes several: what its caller is told is what has happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shardq import (
    BackendError,
    BackendTimeout,
    Client,
    Delivery,
    Limits,
    Message,
    OutcomeUnknown,
    OutOfMemory,
    PartlyDone,
    PartlyPublished,
    PartlyWritten,
    Queue,
    ShardqError,
    Written,
)
from tests.fault.conftest import Open
from tests.fault.sharing.test_coalescing import meet
from tests.proxy import Proxy, on_the_wire
from tests.servers import Server, ServerKind
from tests.surface import differences
from tests.verbs import LOOKS, VERBS

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
    letters = known.dead(250)
    return Compound(250, lambda: queue.delete_dead(letters), lambda: 250 - known.stats().dead)


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


def unbind_many(queue: Queue, known: Queue) -> Compound:
    bindings, router = [(f"p{n}.*", queue.name) for n in range(2500)], queue.name
    known.client.bind_many(bindings, router=router)
    return Compound(
        2500,
        lambda: queue.client.unbind_many(bindings, router=router),
        lambda: 2500 - len(known.client.router(router)),
    )


def unbind_gone(queue: Queue, known: Queue) -> Compound:
    router = queue.name
    known.client.bind_many([(f"p{n}.*", f"{queue.name}.gone") for n in range(3)], router=router)
    return Compound(3, lambda: queue.client.unbind_gone(router=router), lambda: 3 - len(known.client.router(router)))


def publish(queue: Queue, known: Queue) -> Compound:
    router, bound = queue.name, [known.client.queue(f"{queue.name}.{n}", streams=2) for n in range(3)]
    for each in bound:
        each.declare()
    known.client.bind_many([("topic", each) for each in bound], router=router)
    return Compound(
        3,
        lambda: queue.client.publish("topic", 1, shard_key="t", router=router, timeout=SOON),
        lambda: sum(each.len() for each in bound),
    )


def held(queue: Queue, known: Queue, count: int) -> list[Delivery]:
    known.write_many([(n, f"t{n % 7}") for n in range(count)])
    return queue.read_many(count)


def ack_many(queue: Queue, known: Queue) -> Compound:
    found = held(queue, known, 450)
    return Compound(450, lambda: queue.ack_many(found), lambda: known.stats().acked)


def ack_many_with_results(queue: Queue, known: Queue) -> Compound:
    known.configure(result_ttl=60)
    found = held(queue, known, 450)
    return Compound(450, lambda: queue.ack_many(found, results=[1] * 450), lambda: known.stats().acked)


def nack_many(queue: Queue, known: Queue) -> Compound:
    found = held(queue, known, 450)
    return Compound(450, lambda: queue.nack_many(found), lambda: 450 - known.stats().in_flight)


def reject_many(queue: Queue, known: Queue) -> Compound:
    found = held(queue, known, 450)
    return Compound(450, lambda: queue.reject_many(found, "no"), lambda: known.stats().dead)


def unassign(queue: Queue, known: Queue) -> Compound:
    known.assign(["a"])
    return Compound(1, lambda: queue.unassign(["a"]), lambda: not known.assignment())


def set_plan(queue: Queue, known: Queue) -> Compound:
    return Compound(1, lambda: queue.set_plan("gold", rate=5), lambda: len(known.plans()))


def delete_plan(queue: Queue, known: Queue) -> Compound:
    known.set_plan("gold", rate=5)
    return Compound(1, lambda: queue.delete_plan("gold"), lambda: not known.plans())


def pause(queue: Queue, known: Queue) -> Compound:
    return Compound(1, lambda: queue.pause("a"), lambda: len(known.paused()))


def resume(queue: Queue, known: Queue) -> Compound:
    known.pause("a")
    return Compound(1, lambda: queue.resume("a"), lambda: not known.paused())


def add_schedule(queue: Queue, known: Queue) -> Compound:
    known.configure(max_schedules=5)
    add = partial(queue.schedules.add, "often", "call", shard_key="t", every=60)
    return Compound(1, add, lambda: len(known.schedules.list()))


def run_schedule(queue: Queue, known: Queue) -> Compound:
    known.configure(max_schedules=5)
    known.schedules.add("often", "call", shard_key="t", every=60)
    return Compound(1, lambda: queue.schedules.run("often"), known.len)


def _exists(queue: Queue) -> bool:
    try:
        queue.settings()
    except ShardqError:
        return False
    return True


def bury(queue: Queue, count: int) -> None:
    queue.write_many([(n, "t") for n in range(count)])
    queue.reject_many(queue.read_many(count), "no good")


COMPOUNDS: dict[str, Callable[[Queue, Queue], Compound]] = {
    "Client.bind_many": bind_many, "Client.publish": publish, "Client.unbind_gone": unbind_gone,
    "Client.unbind_many": unbind_many, "Queue.ack_many": ack_many, "Queue.ack_many, results": ack_many_with_results,
    "Queue.assign": assign, "Queue.configure": configure, "Queue.delete": delete, "Queue.delete_dead": delete_dead,
    "Queue.delete_plan": delete_plan, "Queue.nack_many": nack_many, "Queue.pause": pause, "Queue.purge": purge,
    "Queue.redrive": redrive, "Queue.reject_many": reject_many, "Queue.resize": resize, "Queue.resume": resume,
    "Queue.set_limits": set_limits, "Queue.set_plan": set_plan, "Queue.set_weights": set_weights,
    "Queue.unassign": unassign, "Queue.write_many": write_many, "Schedules.add": add_schedule,
    "Schedules.run": run_schedule,
}  # fmt: skip

ONE_CALL = "it is one call"
ACTIONS = "each of its calls says how far the action is: tests/fault/operate/test_actions_cut.py cuts them"
READS = "it changes nothing that its caller must know of: what a lost read was granted is given back"
APART = dict.fromkeys(
    (
        "Client.bind", "Client.unbind", "Delivery.ack", "Delivery.extend", "Delivery.nack", "Delivery.progress",
        "Delivery.reject", "Queue.cancel", "Queue.declare", "Queue.write", "Schedules.pause", "Schedules.remove",
        "Schedules.resume",
    ),
    ONE_CALL,
) | dict.fromkeys(
    ("Action.status", "Action.stop", "Action.wait", "Queue.retry_now", "Queue.stop_action", "Queue.take_over"), ACTIONS
) | dict.fromkeys(("Queue.read", "Queue.read_many", "Queue.result"), READS) | dict.fromkeys(
    ("Writer.close", "Writer.flush", "Writer.write"), "tests/fault/write has its faults"
)  # fmt: skip


def test_each_call_that_makes_several_is_cut_between_them() -> None:
    changes = {name.partition(",")[0] for name in VERBS.keys() - {*LOOKS}}
    assert differences(COMPOUNDS, changes, APART) == []


def told_done(error: ShardqError | None, whole: int) -> range:
    """How much may have happened, by what the caller was told."""
    match error:
        case None:
            done, unknown = whole, 0
        case PartlyWritten():
            done = sum(isinstance(each, Written) for each in error.results)
            unknown = sum(isinstance(each, OutcomeUnknown) for each in error.results)
        case PartlyPublished():
            done = sum(isinstance(each, Written) for each in error.results.values())
            unknown = sum(isinstance(each, OutcomeUnknown) for each in error.results.values())
        case PartlyDone():
            done = error.done
            unknown = whole - done if isinstance(error.__cause__, OutcomeUnknown) else 0
        case _:
            done, unknown = 0, whole if isinstance(error, OutcomeUnknown) else 0
    return range(done, done + unknown + 1)


@pytest.mark.runs_in("test-all")
@pytest.mark.once
@pytest.mark.parametrize("call", COMPOUNDS)
def test_a_call_that_fails_speaks_only_for_what_did_not_happen(
    server: Server, proxy: Proxy, open_client: Open, queue_name: str, call: str
) -> None:
    with Client.from_url(server.url) as client:
        for skip in range(100):
            name = f"{queue_name}.{skip}"
            known = client.queue(name, streams=4, max_dead=1000)
            queue = open_client(proxy.url).queue(name, streams=4, max_dead=1000)
            known.write(0, shard_key="0")
            known.ack_many(known.read_many(1))
            queue.stats()
            compound = COMPOUNDS[call](queue, known)
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
