"""Rows that are calls of tasks, which workers run; and rows with unique keys, and what is done about a key in use."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from shardq import Client, Worker
from shardq.client import Queue
from shardq.tasks import Tasks
from tests.spark.rows import drained, write

pytestmark = [pytest.mark.timeout(300), pytest.mark.runs_in("test-all")]


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_a_row_is_a_call_of_a_task(spark: Any, url: str, client: Client, queue: Queue, codec: str) -> None:
    tasks: Tasks[None] = Tasks(queue.name)
    ran: list[Any] = []

    @tasks.task(name="app.bill")
    def bill(day: date, price: Decimal, tags: list[str], note: str = "none") -> None:
        ran.append((day, price, tags, note))

    arguments = "named_struct('day', date'2026-02-03', 'price', cast(1.50 as decimal(9,2)), 'tags', array('a'))"
    calls = spark.sql(f"select 't' as shard_key, 'app.bill' as task, {arguments} as payload").coalesce(1)
    write(calls, queue, url, codec=codec)
    wrong = calls.selectExpr("shard_key", "explode(array('no name', cast(null as string))) as task", "payload")
    errors = client.queue(f"{queue.name}.errors")
    write(wrong, queue, url, errorQueue=errors.name, create="true")
    assert {each.payload["error"] for each in drained(errors)} == {"task is null, or no name of a task"}
    Worker(client.queue(tasks), tasks, until="empty").run()
    assert ran == [(date(2026, 2, 3), Decimal("1.50"), ["a"], "none")]
    with pytest.raises(Exception, match="column payload has the arguments of a task by name: make it a struct"):
        write(calls.selectExpr("shard_key", "task", "'x' as payload"), queue, url)


def keyed(spark: Any, *rows: tuple[str, str | None]) -> Any:
    columns = "payload string, unique_key string"
    return spark.createDataFrame(rows, columns).selectExpr("'t' as shard_key", "*").coalesce(1)


def test_a_unique_key_in_use_is_passed_over_replaced_or_an_error(spark: Any, url: str, queue: Queue) -> None:
    first = keyed(spark, ("1", "a"), ("2", "ä|b"), ("3", None), ("4", "a"))
    for _ in range(2):
        write(first, queue, url, writeId="w")
    assert queue.len() == 3
    later = keyed(spark, ("5", "a"), ("6", None), ("7", "ä|b"), ("8", "a"))
    write(later, queue, url, onConflict="replace", idempotence="none", chunkSize=1, inFlight=2)
    with pytest.raises(Exception, match=r"UniqueConflict: message \S+ of queue .* has unique_key 'a', and is not done"):
        write(keyed(spark, ("9", "a")), queue, url, onConflict="raise", idempotence="none")
    write(keyed(spark, ("10", "new")), queue, url, onConflict="raise", idempotence="none")
    assert sorted(int(each.payload) for each in drained(queue)) == [3, 6, 7, 8, 10]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"onConflict": "replace"}, "onConflict=replace needs idempotence=none"),
        ({"onConflict": "skip"}, "option onConflict must be existing, replace, raise, not 'skip'"),
    ],
)
def test_what_cannot_be_done_about_a_key_is_refused(
    spark: Any, url: str, queue: Queue, options: dict[str, str], why: str
) -> None:
    with pytest.raises(Exception, match=why):
        write(keyed(spark, ("1", "a")), queue, url, **options)
    with pytest.raises(Exception, match="onConflict=raise needs the column unique_key"):
        write(keyed(spark, ("1", "a")).drop("unique_key"), queue, url, onConflict="raise", idempotence="none")


def test_the_writer_waits_where_the_queue_is_full(spark: Any, url: str, client: Client, queue: Queue) -> None:
    small = client.queue(f"{queue.name}.small", streams=4, max_len=1)
    small.write(b"x", shard_key="t")
    with pytest.raises(Exception, match=r"took no more rows for 0 s, since it is full \(max_len\)"):
        write(keyed(spark, ("1", "a")), small, url, onConflict="replace", idempotence="none", fullTimeout=0)
