"""Two clients write one key at the same moment by different maps: of one, the other, or both, it is stored once.

The one client is held between two of its effects, and meanwhile the queue is resized and the other client writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from shardq import Client, Message, PartlyWritten, Queue, UniqueConflict, Written
from shardq.partitions import parts, resize
from shardq.partitions.homes import home
from tests.conformance.partitions.maps import begin
from tests.fault.conftest import Open
from tests.proxy import Proxy, on_the_wire
from tests.servers import Server

BEFORE, AFTER = 3, 6
SETTINGS: dict[str, Any] = {"partitions": BEFORE, "streams": 4, "streams_per_shard": 2, "visibility_timeout": 600}
TENANTS = [f"tenant-{number}" for number in range(50)]
TENANT = next(each for each in TENANTS if 0 != home(each, BEFORE) != home(each, AFTER) != 0)
"""Its home moves, and is never the head, whose epoch tells of a new map by itself."""

WRITE = on_the_wire("write")
WriteOne = Callable[..., Written]
OpenQueue = Callable[[], Queue]

pytestmark = pytest.mark.runs_in("test-all")


def by_write(queue: Queue, **key: Any) -> Written:
    return queue.write("x", shard_key=TENANT, **key)


def by_write_many(queue: Queue, **key: Any) -> Written:
    return queue.write_many([Message("x", TENANT), Message("x", TENANT, **key)])[1]


def by_a_writer(queue: Queue, **key: Any) -> Written:
    with queue.client.writer() as writer:
        return writer.write(queue.name, "x", shard_key=TENANT, **key).result()


def by_a_topic(queue: Queue, **key: Any) -> Written:
    return queue.client.publish("news", "x", shard_key=TENANT, **key)[queue.name]


WAYS = [
    (by_write, "dedup_key"), (by_write, "unique_key"), (by_write_many, "dedup_key"), (by_write_many, "unique_key"),
    (by_a_writer, "unique_key"), (by_a_topic, "dedup_key"),
]  # fmt: skip


@pytest.fixture(params=WAYS, ids=lambda way: f"{way[0].__name__}-{way[1]}")
def way(request: pytest.FixtureRequest) -> Any:
    """How to write a message, and with which key."""
    write, name = request.param
    return write, {name: "k"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody hears of a map in time: so whatever is held is held for longer than the pause."""
    monkeypatch.setattr(resize, "PAUSE_SECONDS", 0.0)


@pytest.fixture
def fresh(server: Server) -> Iterator[OpenQueue]:
    """Opens the queue of a client of its own, which has seen nothing yet."""
    with ExitStack() as stack:

        def make() -> Queue:
            return stack.enter_context(Client.from_url(server.url)).queue("jobs")

        with Client.from_url(server.url) as client:
            client.queue("jobs", **SETTINGS).declare()
            client.bind("news", "jobs")
        yield make


@pytest.fixture
def held(proxy: Proxy, open_client: Open, fresh: OpenQueue) -> OpenQueue:
    """Opens the queue of a client behind the proxy. It has written to each home."""

    def make() -> Queue:
        queue = open_client(proxy.url).queue("jobs")
        by_a_topic(queue)
        queue.write_many([("x", each) for each in TENANTS])
        drain(fresh())
        return queue

    return make


def drain(queue: Queue) -> list[Any]:
    """Read and ack all that there is."""
    found = queue.read_many(1000)
    assert queue.ack_many(found) == []
    return found


class Other:
    """Another client. It resizes the queue and writes the key; `wrote` is what it was told."""

    wrote: Written

    def __init__(self, fresh: OpenQueue, key: dict[str, str]) -> None:
        self._fresh, self._key = fresh, key

    def __call__(self) -> None:
        self._fresh().resize(partitions=AFTER)
        self.wrote = by_write(self._fresh(), **self._key)

    def check(self, write: WriteOne) -> None:
        """There is one message with the key, and what was written beside it."""
        found = [each.message_id for each in self._fresh().read_many(1000)]
        assert len(found) == (2 if write is by_write_many else 1)
        assert self.wrote in found


@pytest.mark.parametrize("has_begun", [False, True], ids=["the-old-map", "the-map-between"])
def test_who_is_held_before_its_write_stores_nothing_beside_what_another_has_stored(
    proxy: Proxy, held: OpenQueue, fresh: OpenQueue, way: tuple[WriteOne, dict[str, str]], has_begun: bool
) -> None:
    """It has asked wherever its map says, and nothing was known there."""
    write, key = way
    if has_begun:
        begin(fresh(), AFTER)
    queue, other = held(), Other(fresh, key)
    proxy.before_request(WRITE, other)
    mine = write(queue, **key)
    assert (mine, mine.is_new, other.wrote.is_new) == (other.wrote, False, True)
    other.check(write)


@pytest.mark.parametrize("was_done", [True, False])
def test_a_write_that_is_repeated_after_a_resize_stores_once(
    proxy: Proxy, held: OpenQueue, fresh: OpenQueue, way: tuple[WriteOne, dict[str, str]], was_done: bool
) -> None:
    """If its first try was done, that counts, and else what another client wrote meanwhile."""
    write, key = way
    queue, other = held(), Other(fresh, key)
    proxy.before_request(WRITE, other, skip=1)
    (proxy.cut_after_request if was_done else proxy.cut_before_request)(WRITE)
    mine = write(queue, **key)
    assert (mine, mine.is_new, other.wrote.is_new) == (other.wrote, was_done, not was_done)
    other.check(write)


@pytest.mark.parametrize("write", [by_write, by_write_many])
def test_a_write_whose_message_is_done_by_now_is_not_done_again_after_a_resize(
    proxy: Proxy, held: OpenQueue, fresh: OpenQueue, write: WriteOne
) -> None:
    """A unique key is free once its message is acked; but the write that is repeated was done, whoever has it now."""
    queue, other, done = held(), Other(fresh, {"unique_key": "k"}), list[str]()

    def act() -> None:
        done.extend([each.message_id for each in drain(fresh())])
        other()

    proxy.before_request(WRITE, act, skip=1)
    proxy.cut_after_request(WRITE)
    mine = write(queue, unique_key="k")
    assert mine in done
    assert mine.is_new
    assert [each.message_id for each in drain(fresh())] == [other.wrote]


def test_a_late_copy_of_a_write_stores_nothing_after_a_resize(
    proxy: Proxy, held: OpenQueue, fresh: OpenQueue, way: tuple[WriteOne, dict[str, str]]
) -> None:
    """The network held it back, and its writer has stored what it says elsewhere by then."""
    write, key = way
    queue, copies = held(), proxy.copies(WRITE)
    proxy.cut_before_request(WRITE)
    proxy.before_request(WRITE, lambda: fresh().resize(partitions=AFTER), skip=1)
    mine = write(queue, **key)
    assert mine.is_new
    assert proxy.deliver(copies[0]) == [b"EPOCH"]
    found = [each.message_id for each in drain(fresh())]
    assert (mine in found, len(found)) == (True, 2 if write is by_write_many else 1)


@pytest.mark.parametrize("write", [by_write, by_write_many])
def test_what_was_known_when_it_was_asked_and_is_gone_when_it_is_written_goes_to_its_home(
    proxy: Proxy, held: OpenQueue, fresh: OpenQueue, write: WriteOne
) -> None:
    """Else the two who write it after that would store it in two places."""
    queue, other = held(), Other(fresh, {"unique_key": "k"})
    first = by_write(fresh(), unique_key="k")
    fresh().resize(partitions=AFTER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "MAX_AGE", 0.0)
        queue.write_many([("x", TENANT)])
        assert by_write(queue, unique_key="k") == first

    def act() -> None:
        assert first in [each.message_id for each in drain(fresh())]
        other()

    proxy.before_request(WRITE, act)
    mine = write(queue, unique_key="k")
    assert (mine, mine.is_new, other.wrote.is_new) == (other.wrote, False, True)
    assert mine != first


@pytest.mark.parametrize("on_conflict", ["replace", "raise"])
def test_who_is_held_is_told_of_a_conflict_with_what_another_has_stored(
    proxy: Proxy, held: OpenQueue, fresh: OpenQueue, on_conflict: str
) -> None:
    queue, other = held(), Other(fresh, {"unique_key": "k"})
    proxy.before_request(WRITE, other)
    if on_conflict == "raise":
        with pytest.raises(UniqueConflict) as conflict:
            queue.write("mine", shard_key=TENANT, unique_key="k", on_conflict="raise")
        told = conflict.value.message_id
    else:
        told = queue.write("mine", shard_key=TENANT, unique_key="k", on_conflict="replace")
    assert told == other.wrote
    (found,) = fresh().read_many(1000)
    assert (found.message_id, found.payload) == (told, "mine" if on_conflict == "replace" else "x")


@pytest.mark.parametrize("is_resized", [False, True], ids=["the-old-map", "the-new-map"])
def test_what_would_replace_a_message_in_flight_that_is_acked_meanwhile_is_stored_once(
    proxy: Proxy, held: OpenQueue, fresh: OpenQueue, is_resized: bool
) -> None:
    """The first call is told who is being worked on, and the second may take the key from that one: nobody has it."""
    by_write(fresh(), unique_key="k")
    (worked_on,) = fresh().read_many(9)
    if is_resized:
        fresh().resize(partitions=AFTER)
    queue, other = held(), Other(fresh, {"unique_key": "k"})

    def act() -> None:
        worked_on.ack()
        other()

    proxy.before_request(WRITE, act, skip=1)
    told = queue.write("mine", shard_key=TENANT, unique_key="k", on_conflict="replace")
    assert (told, told.is_new) == (other.wrote, False)
    (found,) = fresh().read_many(1000)
    assert (found.message_id, found.payload) == (told, "mine")


def test_who_knew_an_earlier_queue_of_the_name_is_refused_all_the_same(
    proxy: Proxy, held: OpenQueue, fresh: OpenQueue
) -> None:
    """The maps of the one that was made anew are counted from the beginning."""
    queue: Any = held()
    fresh().resize(partitions=AFTER)
    by_write(fresh(), dedup_key="told")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "MAX_AGE", 0.0)
        queue.write_many([("x", each) for each in TENANTS])
        assert queue.state.parts.told == 2
        fresh().delete(expected=None)
        fresh().client.queue("jobs", **SETTINGS).declare()
        by_write_many(queue, dedup_key="another")
        drain(fresh())
    key = {"dedup_key": "k"}
    other = Other(fresh, key)
    proxy.before_request(WRITE, other)
    mine = by_write_many(queue, **key)
    assert (mine, mine.is_new, other.wrote.is_new) == (other.wrote, False, True)
    other.check(by_write_many)


@pytest.mark.parametrize("on_conflict", ["replace", "raise"])
def test_many_that_are_dealt_again_are_told_of_conflicts_each_for_itself(
    proxy: Proxy, held: OpenQueue, fresh: OpenQueue, on_conflict: Any
) -> None:
    queue, other = held(), Other(fresh, {"unique_key": "k"})
    proxy.before_request(WRITE, other)
    mine = [Message("mine", TENANT), Message("mine", TENANT, unique_key="k", on_conflict=on_conflict)]
    if on_conflict == "raise":
        with pytest.raises(PartlyWritten) as partly:
            queue.write_many(mine)
        first, second = partly.value.results
        assert isinstance(second, UniqueConflict)
        assert second.message_id == other.wrote
    else:
        first, second = queue.write_many(mine)
        assert second == other.wrote
    assert {each.message_id for each in fresh().read_many(1000)} == {first, other.wrote}
