"""`spark.read.format("shardq")`: what a queue holds, as tables, without taking any of it."""

from __future__ import annotations

import datetime
from collections import Counter
from typing import Any

import pytest

from shardq import Client, Message
from shardq.client import Queue

pytestmark = [pytest.mark.timeout(300), pytest.mark.runs_in("test-all")]


def read(spark: Any, queue: Queue, url: str, schema: str = "", **options: object) -> Any:
    """A table of *queue*."""
    reader = spark.read.format("shardq").options(**{"url": url, "subscribe": queue.name, **options})
    return (reader.schema(schema) if schema else reader).load()


def filled(queue: Queue) -> dict[str, set[str]]:
    """Fill *queue* with messages in every state; their ids by state."""
    ids = queue.write_many([Message(f"p{at}".encode(), f"tenant-{at % 20}") for at in range(2000)])
    leased = queue.read_many(300)
    queue.ack_many(leased[:100])
    queue.nack_many(leased[100:150], error="not yet")
    queue.nack_many(leased[150:160], delay=3600, error="later")
    queue.reject_many(leased[160:180], "no good")
    delayed = queue.write_many([Message(b"d", "tenant-1", delay=3600) for _ in range(40)])
    gone = {each.message_id for each in leased}
    return {
        "backlog": set(ids) - gone | {each.message_id for each in leased[100:150]},
        "in_flight": {each.message_id for each in leased[180:]},
        "delayed": {*delayed, *(each.message_id for each in leased[150:160])},
        "dead": {each.message_id for each in leased[160:180]},
    }


@pytest.mark.runs_in("test", "test-all")
def test_tables_hold_what_the_queue_holds_and_take_nothing(spark: Any, url: str, queue: Queue) -> None:
    wanted, before = filled(queue), queue.stats()
    rows = read(spark, queue, url).collect()
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row.state, []).append(row.message_id)
    assert {state: Counter(ids) for state, ids in found.items()} == {
        state: Counter(ids) for state, ids in wanted.items() if state != "dead"
    }
    dead = read(spark, queue, url, state="dead").collect()
    assert Counter(row.message_id for row in dead) == Counter(wanted["dead"])
    assert {(row.reason, row["count"], row.queue) for row in dead} == {("no good", 1, queue.name)}
    after = queue.stats()
    assert (after.backlog, after.in_flight, after.delayed, after.dead) == (
        before.backlog, before.in_flight, before.delayed, before.dead
    )  # fmt: skip


def test_columns_say_what_is_known_of_a_message(spark: Any, url: str, queue: Queue) -> None:
    queue.write({"a": [1, 2]}, shard_key="first", headers={"kind": "x"}, deadline=7200)
    delivery = queue.read()
    delivery.nack(error="try again")
    second = queue.read()
    queue.write(b"raw", shard_key=b"\xff\x00", delay=60)
    rows = {row.state: row for row in read(spark, queue, url).collect()}
    leased, delayed = rows["in_flight"], rows["delayed"]
    assert (leased.message_id, leased.shard_key, leased["count"]) == (second.message_id, "first", 2)
    assert (leased.last_error, leased.codec, leased.headers) == ("try again", "m", {"kind": "x"})
    assert leased.stream == second.stream
    assert leased.lease_until > leased.written_at
    assert leased.deadline - leased.written_at == datetime.timedelta(hours=2)
    assert (delayed.shard_key, delayed.payload, delayed.stream) == ("\\xff\x00", b"raw", None)
    assert 59 <= (delayed.due_at - delayed.written_at).total_seconds() <= 61
    typed = "shard_key binary, payload struct<a: array<int>>, state string"
    decoded = {row.state: row for row in read(spark, queue, url, typed).collect()}
    assert decoded["in_flight"].payload.a == [1, 2]
    assert decoded["delayed"].payload is None
    assert decoded["delayed"].shard_key == b"\xff\x00"


def test_options_and_the_schema_prune(spark: Any, url: str, queue: Queue) -> None:
    queue.configure(window=0)  # so that the backlog lies in the streams
    wanted = filled(queue)
    assert read(spark, queue, url, "message_id string", state="in_flight").columns == ["message_id"]
    for state in ("backlog", "in_flight", "delayed"):
        found = [row.message_id for row in read(spark, queue, url, "message_id string", state=state).collect()]
        assert sorted(found) == sorted(wanted[state])
    some = read(spark, queue, url, shardKeys="tenant-3,tenant-4", state="backlog").collect()
    assert {row.shard_key for row in some} == {"tenant-3", "tenant-4"}
    of_streams = read(spark, queue, url, streams="0,5", state="backlog").collect()
    assert {row.stream for row in of_streams} == {0, 5}
    stats = queue.stats()
    assert len(of_streams) == stats.streams[0] + stats.streams[5]
    middle = sorted(int(each.partition("-")[0]) for each in wanted["backlog"])[1000]
    early = read(spark, queue, url, state="backlog", endingTimestamp=middle - 1).count()
    late = read(spark, queue, url, state="backlog", startingTimestamp=middle).count()
    assert early + late == len(wanted["backlog"])
    assert late > 0


def test_what_the_admission_window_holds_back_is_backlog(spark: Any, url: str, client: Client, queue_name: str) -> None:
    fair = client.queue(queue_name, streams=4, streams_per_shard=2, window=2)
    ids = fair.write_many([Message(b"x", f"t-{at % 3}") for at in range(300)])
    assert fair.stats().held_back > 200
    rows = read(spark, fair, url).collect()
    assert sorted(row.message_id for row in rows) == sorted(ids)
    assert {row.state for row in rows} == {"backlog"}


def test_a_message_that_stays_is_seen_once_while_others_move(spark: Any, url: str, queue: Queue) -> None:
    """Workers deliver, settle and add while the table is read."""
    import threading

    stay = set(queue.write_many([Message(b"x", f"t-{at % 50}") for at in range(20_000)])[15_000:])
    done = threading.Event()

    def work() -> None:
        for _ in range(12):
            some = queue.read_many(500)
            queue.nack_many(some[:50])
            queue.ack_many(some[50:])
            queue.write_many([(b"y", f"t-{at}") for at in range(300)])
            if done.is_set():
                break

    worker = threading.Thread(target=work)
    worker.start()
    found = Counter(row.message_id for row in read(spark, queue, url, "message_id string", fetchSize=100).collect())
    done.set()
    worker.join()
    assert {each: found[each] for each in stay} == dict.fromkeys(stay, 1)
    assert max(found.values()) == 1


@pytest.mark.parametrize(
    ("options", "schema", "text"),
    [
        ({"state": "pending"}, "", "option state is backlog, in_flight, delayed"),
        ({"state": "dead,backlog"}, "", "tables of their own"),
        ({"subscribe": "nowhere"}, "", "there is no queue 'nowhere'"),
        ({"fetchSize": "0"}, "", "option fetchSize must be a whole number from 1 to 10,000"),
        ({"streams": "99"}, "", "has 8 streams, so there is no 99"),
        ({"state": "journal"}, "", "keeps no journal"),
        ({}, "tenant string", "there is no column tenant"),
        ({}, "stream string", "column stream is int, not string"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_to_do(
    spark: Any, url: str, queue: Queue, options: dict[str, str], schema: str, text: str
) -> None:
    with pytest.raises(Exception, match=text):
        read(spark, queue, url, schema, **options).collect()
