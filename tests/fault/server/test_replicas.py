"""durability="replica(n)": a write waits for replicas, and says when too few confirmed it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shardq import Client, DurabilityUnknown, OutcomeUnknown, PartlyPublished, PartlyWritten, Queue, QueueFull
from shardq.drivers import wire
from shardq.protocol.keys import QueueKeys
from shardq.protocol.scripts import load, names
from shardq.spark.ops.bulk import BulkOffset, store_rows
from shardq.spark.ops.rows import RowPace, Rows
from tests.fault.conftest import Open
from tests.house.doc_blocks import ROOT
from tests.house.test_paths import section
from tests.proxy import Proxy, on_the_wire
from tests.servers import Replicated, Server, available
from tests.verbs import LOOKS, SETTINGS, VERBS, furnish
from tests.waiting import eventually

PAGE = (ROOT / "docs" / "durability.md").read_text()


@pytest.fixture(scope="module")
def pair() -> Iterator[Replicated]:
    """A primary and one replica."""
    with Replicated(next(iter(available()), None)) as pair:
        yield pair


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica may take its time."""
    monkeypatch.setattr(wire, "REPLICA_TIMEOUT_MS", 20_000)


@pytest.mark.usefixtures("patient")
def test_a_write_that_a_replica_confirmed_is_told_as_done(pair: Replicated, open_client: Open, queue_name: str) -> None:
    queue = open_client(pair.primary.url, durability="replica(1)").queue(queue_name, create=True)
    ids = [queue.write("one", shard_key="t"), *queue.write_many([("many", "t")] * 3)]
    assert sorted(delivery.message_id for delivery in queue.read_many(10)) == sorted(ids)
    assert pair.replicas[0].run("EXISTS", QueueKeys(queue_name).meta) == 1


@pytest.mark.runs_in("test-all")
def test_a_write_that_no_replica_confirmed_is_told_with_its_id_and_is_delivered(
    pair: Replicated, open_client: Open, queue_name: str
) -> None:
    queue = open_client(pair.primary.url, durability="replica(1)").queue(queue_name, create=True)
    with contextlib.suppress(DurabilityUnknown):
        queue.write("-", shard_key="t")
    queue.read().ack()
    pair.replicas[0].pause()
    try:
        with pytest.raises(DurabilityUnknown, match="0 of 1 replicas") as one:
            queue.write("one", shard_key="t")
        with pytest.raises(PartlyWritten) as many:
            queue.write_many([("many", "t")] * 2)
    finally:
        pair.replicas[0].resume()
    results = [result for result in many.value.results if isinstance(result, DurabilityUnknown)]
    assert len(results) == 2
    known = {one.value.result, *(each.result for each in results)}
    assert {delivery.message_id for delivery in queue.read_many(10)} == known
    pair.wait_in_sync()


@pytest.mark.runs_in("test-all")
def test_more_replicas_than_there_are_never_confirm(pair: Replicated, open_client: Open, queue_name: str) -> None:
    queue = open_client(pair.primary.url, durability="replica(2)").queue(queue_name, create=True)
    tries, told = 0, ""
    while "1 of 2" not in told and tries < 5:  # the one that there is may be late
        tries += 1
        with pytest.raises(DurabilityUnknown, match="of 2 replicas") as unknown:
            queue.write("one", shard_key="t")
        told = str(unknown.value)
    assert "1 of 2" in told
    assert queue.len() == tries


# --- which replies hold something that is stored -------------------------------------------------------------------


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, server: Server, open_client: Open, queue_name: str) -> Queue:
    """A queue of one shard key's on a server without replicas, and its epoch moved since."""
    monkeypatch.setattr(wire, "REPLICA_TIMEOUT_MS", 20)
    queue = open_client(server.url, durability="replica(1)").queue(queue_name, streams=4, max_len=6)
    with pytest.raises(DurabilityUnknown):
        queue.write("first", shard_key="t")
    with Client.from_url(server.url) as other:
        other.queue(queue_name, create=True).resize(8)
    return queue


def shown(queue: Queue) -> list[str]:
    """The ids of all that can be read; one read may have an old idea of where."""
    found: list[str] = []
    while some := queue.read_many(100):
        found += [each.message_id for each in some]
    return sorted(found)


def test_a_write_by_an_old_epoch_is_told_with_its_id(alone: Queue) -> None:
    with pytest.raises(DurabilityUnknown) as unknown:
        alone.write("second", shard_key="t")
    assert unknown.value.result in shown(alone)


def test_a_batch_by_an_old_epoch_is_told_with_its_ids(alone: Queue) -> None:
    with pytest.raises(PartlyWritten) as partly:
        alone.write_many([("more", "t")] * 3)
    found = [each.result for each in partly.value.results if isinstance(each, DurabilityUnknown)]
    assert len(found) == 3
    assert set(found) < set(shown(alone))


def test_a_full_queue_is_told_as_full(alone: Queue) -> None:
    with pytest.raises(PartlyWritten):
        alone.write_many([("more", "t")] * 4)
    with pytest.raises(QueueFull, match="max_len"):
        alone.write("too many", shard_key="t")
    with pytest.raises(DurabilityUnknown, match="changed, but 0 of 1 replicas"):
        alone.configure(max_len=0, max_backlog=5, window=1)
    with pytest.raises(PartlyWritten) as partly:
        alone.write_many([("more", "u")] * 7)
    assert [type(each) for each in partly.value.results] == [DurabilityUnknown] * 5 + [QueueFull] * 2


def test_a_write_that_was_overtaken_is_told_as_unknown(alone: Queue, server: Server) -> None:
    field = f"p:{alone.state.producer}:0"
    server.run("HSET", alone.state.keys.meta, field, "9000000000000|99|1-1-1")
    with pytest.raises(OutcomeUnknown, match="overtook") as unknown:
        alone.write("late", shard_key="t")
    assert type(unknown.value) is OutcomeUnknown


def test_what_is_published_by_an_old_epoch_is_told_with_its_id(alone: Queue, server: Server, open_client: Open) -> None:
    with Client.from_url(server.url) as other:
        other.bind("topic", alone.name)
    client = open_client(server.url, durability="replica(1)")
    with pytest.raises(PartlyPublished):
        client.publish("topic", 1, shard_key="t")
    with Client.from_url(server.url) as other:
        other.queue(alone.name, create=True).resize(9)
    with pytest.raises(PartlyPublished) as partly:
        client.publish("topic", 2, shard_key="t")
    told = partly.value.results[alone.name]
    assert isinstance(told, DurabilityUnknown)
    assert told.result in shown(alone)


CHANGES: dict[str, tuple[Callable[[Queue], Any], Callable[[Queue], Any]]] = {
    "configure": (lambda queue: queue.configure(max_deliveries=9), lambda queue: queue.settings()),
    "resize": (lambda queue: queue.resize(16), lambda queue: (len(queue.stats().streams), queue.stats().wanted)),
    "set_weights": (lambda queue: queue.set_weights({"a": 3}), lambda queue: queue.weights()),
    "assign": (lambda queue: queue.assign(["a"]), lambda queue: queue.assignment()),
}
"""Some that return what the queue has then."""


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_queue_that_no_replica_confirmed_is_told_as_done(alone: Queue, change: str) -> None:
    act, state = CHANGES[change]
    with pytest.raises(DurabilityUnknown, match="changed, but 0 of 1 replicas confirmed") as unknown:
        act(alone)
    told: list[Any] = [unknown.value.result, state(alone)]
    if change == "assign":
        told = [dict(each.items()) for each in told]
    assert told[0] == told[1]


def documented() -> dict[str, bool]:
    """Which calls wait for replicas, as docs/durability.md has it."""
    rows = re.findall(r"^\| (`.*?) \| (yes|no) \|", section(PAGE, "## Which calls wait for replicas?"), re.MULTILINE)
    return {name: waits == "yes" for names, waits in rows for name in re.findall(r"`([\w.]+)`", names)}


def waits(call: Callable[[Queue], object], queue: Queue) -> bool:
    """Whether a call waited for a replica, of which there is none."""
    try:
        call(queue)
    except DurabilityUnknown:
        return True
    except (PartlyWritten, PartlyPublished) as error:
        return isinstance(error.__cause__, DurabilityUnknown)
    return False


@pytest.mark.runs_in("test-all")
def test_each_call_waits_for_replicas_if_the_docs_say_so(
    server: Server, open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "REPLICA_TIMEOUT_MS", 1)
    found = dict[str, bool]()
    for name in VERBS.keys() - {*LOOKS}:
        server.run("FLUSHALL")
        with Client.from_url(server.url) as client:
            furnish(client.queue("jobs", **SETTINGS))
        kind, _, method = name.partition(",")[0].partition(".")
        spelled = {"Schedules": f"schedules.{method}", "Writer": "write"}.get(kind, method)
        found[spelled] = waits(VERBS[name], open_client(server.url, durability="replica(1)").queue("jobs"))
    assert found == documented()


@pytest.mark.usefixtures("alone")
def test_a_binding_that_no_replica_confirmed_is_told_as_done(server: Server, open_client: Open) -> None:
    """Without it what is published goes nowhere, and nobody is told."""
    client = open_client(server.url, durability="replica(1)")
    calls: list[tuple[Callable[[], object], object]] = [
        (lambda: client.bind("topic", "q"), True),
        (lambda: client.bind("topic", "q"), False),
        (lambda: client.bind_many([("topic", "q"), ("other", "q")]), [("topic", "q")]),
        (lambda: client.unbind("topic", "q"), True),
        (client.unbind_gone, [("other", "q")]),
    ]
    for call, result in calls:
        with pytest.raises(DurabilityUnknown, match="changed, but 0 of 1 replicas confirmed") as unknown:
            call()
        assert unknown.value.result == result


@pytest.fixture
def forbidden(server: Server) -> Iterator[str]:
    """The URL of a user who may do all but wait for replicas."""
    server.run("ACL", "SETUSER", "hasty", "reset", "on", ">secret", "~*", "&*", "+@all", "-wait")
    yield server.url.replace("unix://", "unix://hasty:secret@")
    server.run("ACL", "DELUSER", "hasty")


def test_who_may_not_wait_for_replicas_is_told_what_was_stored(
    forbidden: str, open_client: Open, queue_name: str
) -> None:
    """Not that the call was refused: then its caller would store it again."""
    queue = open_client(forbidden, durability="replica(1)").queue(queue_name, streams=4)
    with pytest.raises(DurabilityUnknown, match=r"written, but Redis refused to wait for 1 replicas \(NOPERM") as one:
        queue.write("one", shard_key="t")
    with pytest.raises(PartlyWritten) as many:
        queue.write_many([("many", "t")] * 2)
    with pytest.raises(DurabilityUnknown, match="rows were stored, but Redis refused"):
        stored_rows(queue, 3)
    results = [result for result in many.value.results if isinstance(result, DurabilityUnknown)]
    found = shown(queue)
    assert len(found) == 6
    assert {one.value.result, *(each.result for each in results)} < set(found)


def stored_rows(queue: Queue, count: int, write_id: str = "w") -> None:
    """Store so many rows in bulk, in chunks of five."""
    rows = Rows([b"t"] * count, "b", [b"%d" % number for number in range(count)])
    queue._client.run(store_rows(queue.state, BulkOffset(write_id, "0"), 0, rows, RowPace(chunk=5, patience=0)))


def test_rows_by_an_old_epoch_are_told_as_stored(alone: Queue, open_client: Open, server: Server) -> None:
    with open_bulk(alone, server) as queue, pytest.raises(DurabilityUnknown, match="rows were stored"):
        stored_rows(queue, 4)
    assert alone.len() == 5


def test_rows_for_a_full_queue_are_told_as_refused(alone: Queue, server: Server) -> None:
    with pytest.raises(PartlyWritten):
        alone.write_many([("more", "t")] * 4)
    with open_bulk(alone, server) as queue, pytest.raises(QueueFull, match="max_len"):
        stored_rows(queue, 4)


@contextlib.contextmanager
def open_bulk(queue: Queue, server: Server) -> Iterator[Queue]:
    """The same queue, in a client that has an old idea of it and waits for a replica."""
    with Client.from_url(server.url, durability="replica(1)") as client:
        mine = client.queue(queue.name, create=True)
        mine.read_many(1, visibility_timeout=0.05)
        with Client.from_url(server.url) as other:
            other.queue(queue.name, create=True).resize(12)
        yield mine


# --- a repeated call waits for what its first try stored -----------------------------------------------------------


@pytest.fixture
def lagging(pair: Replicated, open_client: Open, queue_name: str) -> Iterator[tuple[Queue, Proxy]]:
    """A queue behind a proxy whose replica stands still; it goes on with the test's end at the latest."""
    for name in names():
        pair.primary.run("SCRIPT", "LOAD", load(name).source)
    with Proxy(pair.primary.url) as proxy:
        queue = open_client(proxy.url, durability="replica(1)", timeout=60).queue(queue_name, streams=4)
        with contextlib.suppress(DurabilityUnknown):
            queue.write("-", shard_key="t")
        queue.read().ack()
        pair.wait_in_sync()
        pair.replicas[0].pause()
        try:
            yield queue, proxy
        finally:
            pair.replicas[0].resume()
        pair.wait_in_sync()


def write_one(queue: Queue) -> Any:
    return queue.write("one", shard_key="t")


def write_some(queue: Queue) -> Any:
    return queue.write_many([("some", "t")] * 3)


def write_rows(queue: Queue) -> Any:
    return stored_rows(queue, 3)


@pytest.mark.runs_in("test-all")
@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("act", [write_one, write_some, write_rows])
def test_a_repeated_call_waits_until_a_replica_has_what_its_first_try_stored(
    lagging: tuple[Queue, Proxy], pair: Replicated, act: Callable[[Queue], Any]
) -> None:
    queue, proxy = lagging
    with ThreadPoolExecutor() as pool:
        cut = proxy.cut_after_request(on_the_wire("write"))
        acting = pool.submit(act, queue)
        assert cut.struck.wait(30)
        eventually(lambda: acting.done() or pair.primary.info("clients")["blocked_clients"])
        assert not acting.done(), "told as confirmed, while the replica stands still"
        pair.replicas[0].resume()
        acting.result()
    pair.promote(pair.replicas[0])
    with Client.from_url(pair.primary.url) as client:
        assert len(shown(client.queue(queue.name, create=True))) == (1 if act is write_one else 3)


@pytest.mark.runs_in("test-all")
@pytest.mark.once
@pytest.mark.parametrize("act", [write_one, write_some, write_rows])
def test_a_repeated_call_that_no_replica_confirmed_says_so(
    lagging: tuple[Queue, Proxy], act: Callable[[Queue], Any]
) -> None:
    queue, proxy = lagging
    cut = proxy.cut_after_request(on_the_wire("write"))
    with pytest.raises((DurabilityUnknown, PartlyWritten), match=r"replicas confirmed"):
        act(queue)
    assert cut.struck.is_set()
