"""Somebody deletes entries by hand, behind the queue's back: it goes on, and its numbers come right again."""

from __future__ import annotations

import pytest
import redis

from shardq import Client, Empty
from shardq.sharding import shard
from tests.conformance.census import take
from tests.fault.conftest import Open
from tests.servers import Server
from tests.waiting import eventually

RETRY_AFTER = 5  # seconds after which a message is tried again for which there was no room among the dead letters


@pytest.mark.parametrize(("streams", "smaller"), [(6, 1), (24, 3)])
def test_a_stream_that_was_emptied_by_hand_and_shrunk_away_stops_no_reader(
    server: Server, open_client: Open, queue_name: str, streams: int, smaller: int
) -> None:
    """Its message was in flight: the lease ends, and names a stream that no reader knows."""
    client: Client = open_client(server.url)
    queue = client.queue(queue_name, streams=streams, streams_per_shard=1)
    queue.write_many([("lost", f"tenant-{n}") for n in range(4 * streams)])
    held = {delivery.received.stream for delivery in queue.read_many(4 * streams, visibility_timeout=0.1)}
    plain = redis.Redis.from_url(server.url)
    for stream in held:
        plain.xtrim(queue.state.keys.stream(stream or 0), maxlen=0)
    assert queue.resize(smaller)[0] == smaller
    plain.close()
    eventually(lambda: queue.stats().in_flight == 0)
    with pytest.raises(Empty):
        queue.read(block=0.3)
    queue.write("next", shard_key="t")
    assert queue.read().payload == "next"
    stats = queue.stats()
    assert (stats.backlog, stats.in_flight, stats.vanished) == (0, 1, 4 * streams)


@pytest.mark.runs_in("test-all")
@pytest.mark.once
@pytest.mark.parametrize("count", [1, 1000])
def test_readers_go_on_though_thousands_of_streams_were_emptied_by_hand(
    server: Server, queue_name: str, count: int
) -> None:
    """More than one call may look at, and more than one HSET of Lua's can note."""
    with Client.from_url(server.url) as client, server.client() as plain:
        queue = client.queue(queue_name, streams=2500, streams_per_shard=4)
        queue.write_many([("lost", f"tenant-{n}") for n in range(3000)])
        assert sum(1 for length in queue.stats().streams if length) > 2000
        with plain.pipeline(transaction=False) as pipe:
            for number in range(2500):
                pipe.xtrim(queue.state.keys.stream(number), maxlen=0)
            pipe.execute()
        queue.state.width = 2500  # as of a reader that missed often
        assert queue.read_many(count) == []
        stats = queue.stats()
        assert (stats.backlog, stats.vanished, sum(stats.streams)) == (0, 3000, 0)
        queue.write("next", shard_key="t")
        assert queue.read().payload == "next"


def test_a_message_is_cancelled_in_flight_though_others_wrote_to_its_stream(
    server: Server, open_client: Open, queue_name: str
) -> None:
    """Their entries are numbered from 0, so the number alone does not tell what was handed out before."""
    queue = open_client(server.url).queue(queue_name, streams=1)
    ids = queue.write_many([(str(n), f"tenant-{n}") for n in range(3)])
    with server.client() as plain:
        _foreign(plain, queue.state.keys.stream(0))
        deliveries = queue.read_many(9)
        assert len(deliveries) == 4
        assert queue.cancel(ids[1]) == "in flight"
        assert [each.message_id for each in queue.ack_many(deliveries)] == [ids[1]]
        assert take(plain, queue.state.keys).problems() == []


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_what_others_put_into_a_stream_is_handed_out_and_hides_nothing(
    server: Server, open_client: Open, queue_name: str, count: int
) -> None:
    """The stream's count knows nothing of their entries: it must not end the stream's turn before its last message."""
    queue = open_client(server.url).queue(queue_name, streams=1)
    with server.client() as plain:
        queue.write("first", shard_key="t")
        _foreign(plain, queue.state.keys.stream(0), 3)
        queue.write("second", shard_key="another")
        found = []
        while deliveries := queue.read_many(count):
            found += deliveries
        assert [each.payload for each in found] == ["first", *({"odd": b"%d" % n} for n in range(3)), "second"]
        assert (queue.len(), take(plain, queue.state.keys).problems()) == (5, [])
        assert queue.ack_many(found) == []
        assert queue.len() == 0


def test_what_others_put_into_a_stream_comes_though_nothing_is_written_behind_it(
    server: Server, open_client: Open, queue_name: str
) -> None:
    queue = open_client(server.url).queue(queue_name, streams=1)
    with server.client() as plain:
        queue.write("first", shard_key="t")
        _foreign(plain, queue.state.keys.stream(0), 3)
        found = [queue.read() for _ in range(4)]
        assert [each.payload for each in found] == ["first", *({"odd": b"%d" % n} for n in range(3))]
        assert (queue.len(), queue.stats().backlog, take(plain, queue.state.keys).problems()) == (4, 0, [])
        for each in found:
            each.ack()
        assert (queue.len(), take(plain, queue.state.keys).problems()) == (0, [])


@pytest.mark.parametrize("most", [1, 2, 3, 250])
def test_purging_counts_what_is_there_though_others_added_and_deleted(
    server: Server, open_client: Open, queue_name: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a count below zero would keep later messages from ever being found."""
    monkeypatch.setattr("shardq.ops.operate.queues.PURGE_CHUNK", most)
    queue = open_client(server.url).queue(queue_name, streams=2, streams_per_shard=1)
    tenants = {shard(str(n), 2, 1)[0]: str(n) for n in range(20)}
    with server.client() as plain:
        queue.write_many([("work", tenants[0]), ("lost", tenants[1]), ("work", tenants[1])])
        _foreign(plain, queue.state.keys.stream(0), 3)
        (lost, _), *_ = plain.xrange(queue.state.keys.stream(1))
        plain.xdel(queue.state.keys.stream(1), lost)
        queue.write("work", shard_key=tenants[0])
        queue.write("later", shard_key=tenants[0], delay=60)
        assert queue.purge() == 7
        assert (queue.len(), queue.stats().streams, take(plain, queue.state.keys).problems()) == (0, (0, 0), [])
        queue.write_many([("next", tenants[0]), ("next", tenants[1])])
        assert len(queue.read_many(9)) == 2


RUBBISH: list[dict[str | bytes, str | bytes]] = [
    {"k": "1"},
    {"k": "t", "b": "x"},
    {"k": "t", "long": "x", "m": " c" + "9" * 400},
    {"k": "t", "b": "x", "m": " ifoo c5 t99999999999999999999"},
    {"k": "t", "b": "x", "m": " i" + "9" * 30 + "-1-1 c-1 x"},
    {b"k": b"\xff", b"\xff": b"\xff", b"m": b"\xff", b"h": b"\xff"},
    {f"field {n}": str(n) for n in range(200)},
]


@pytest.mark.parametrize("fields", RUBBISH, ids=lambda fields: str(len(fields)))
def test_any_entry_can_be_delivered_rejected_listed_redriven_and_acked(
    server: Server, open_client: Open, queue_name: str, fields: dict[str | bytes, str | bytes]
) -> None:
    queue = open_client(server.url).queue(queue_name, streams=1)
    with server.client() as plain:
        queue.write("before", shard_key="t")
        plain.xadd(queue.state.keys.stream(0), fields, id=f"{_server_ms(plain) + 1}-0")
        plain.xadd(queue.state.keys.dead, fields)
        first, second = queue.read_many(9)
        second.nack(error="once")
        (again,) = queue.read_many(9)
        again.reject("rubbish")
        first.reject("rubbish")
        letters = queue.dead()
        assert [letter.reason for letter in letters] == ["", "rubbish", "rubbish"]
        assert queue.redrive(letters) == 2
        found = queue.read_many(9)
        assert {each.message_id for each in found} == {first.message_id, second.message_id}
        assert queue.ack_many(found) == []
        assert (queue.len(), take(plain, queue.state.keys).problems()) == (0, [])


def _foreign(plain: redis.Redis, stream: str, count: int = 1) -> None:
    """Entries of somebody else, in a millisecond of their own."""
    last = plain.xinfo_stream(stream)["last-generated-id"]
    ms = int(last.partition(b"-")[0])
    for n in range(count):
        plain.xadd(stream, {"odd": str(n)}, id=f"{ms + 1}-{n}")
    eventually(lambda: _server_ms(plain) > ms + 1)


def _server_ms(plain: redis.Redis) -> int:
    seconds, micros = plain.time()
    return int(seconds) * 1000 + int(micros) // 1000


@pytest.mark.runs_in("test-all")
def test_an_entry_of_more_values_than_a_script_can_hand_on_is_delivered_and_acked(
    server: Server, open_client: Open, queue_name: str
) -> None:
    """Rejected, it waits for room: whole, and again and again, rather than that a script fails when half is done."""
    queue = open_client(server.url).queue(queue_name, streams=1)
    with server.client() as plain:
        queue.write("before", shard_key="t")
        huge = {f"field {n}": str(n) for n in range(5_000)}
        plain.xadd(queue.state.keys.stream(0), huge, id=f"{_server_ms(plain) + 1}-0")
        plain.xadd(queue.state.keys.dead, {"i": "1-1-0", **huge})
        first, second = queue.read_many(9)
        second.reject("rubbish")
        assert queue.redrive(queue.dead()) == 0
        assert (queue.stats().delayed, queue.stats().dead) == (1, 1)
        first.ack()
        due = queue.status(second.message_id).until
        assert due is not None
        assert queue.read_many(9, block=RETRY_AFTER + 1) == []
        again = queue.status(second.message_id).until
        assert again is not None
        assert again >= due + RETRY_AFTER
        assert (queue.stats().delayed, take(plain, queue.state.keys).problems()) == (1, [])
