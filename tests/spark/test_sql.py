"""SQL: views and tables of the catalog that are read and filled, and the settings that say where Redis is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shardq.client import Queue
from shardq.errors import ConfigError
from shardq.spark import register
from tests.spark.rows import drained

pytestmark = [pytest.mark.timeout(300), pytest.mark.runs_in("test-all")]
KIND = "struct<n: int, price: decimal(10,2)>"
ROWS = "select 'a' as shard_key, named_struct('n', 1, 'price', 2.50) as payload"


@pytest.fixture
def settings(spark: Any, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The settings of the session, and the format as it is with them; both are as they were after the test."""
    monkeypatch.setenv("SHARDQ_TEST_URL", url)
    yield spark.conf
    for name in ("url", "timeout"):
        spark.conf.unset(f"spark.shardq.{name}")
    register(spark)


def test_a_view_is_read_and_filled(spark: Any, url: str, queue: Queue) -> None:
    spark.sql(f"""
        create or replace temporary view jobs (shard_key string, payload {KIND}) using shardq
        options (url '{url}', queue '{queue.name}', codec 'json', shardKeys 'a')
    """)
    spark.sql(f"insert into jobs {ROWS}")
    spark.sql("insert into jobs values ('b', named_struct('n', 2, 'price', null))")
    assert [row.asDict(recursive=True)["payload"]["n"] for row in spark.table("jobs").collect()] == [1]
    assert spark.sql("select payload.price from jobs").collect()[0].price * 100 == 250
    assert sorted(each.payload["n"] for each in drained(queue)) == [1, 2]


def test_a_table_of_the_catalog_is_read_and_filled_and_keeps_no_password(
    spark: Any, settings: Any, url: str, queue: Queue, client: Any
) -> None:
    name = f"{queue.name}-made"
    settings.set("spark.shardq.url", url)
    register(spark)
    options = f"options (queue '{name}', create 'true', payloadType '{KIND}')"
    spark.sql(f"create or replace temporary view fresh as {ROWS}")
    spark.sql(f"create table stored using shardq {options}")
    try:
        spark.sql("insert into stored (shard_key, payload) select * from fresh")
        spark.sql("insert into stored values ('c', named_struct('n', 3, 'price', 0), map('h', '1'))")
        found = spark.sql("select shard_key, payload.n from stored where payload.price > 1").collect()
        assert [tuple(row) for row in found] == [("a", 1)]
        assert [dict(each.headers) for each in drained(client.queue(name)) if each.shard_key == "c"] == [{"h": "1"}]
        with pytest.raises(Exception, match=r"a queue cannot be overwritten"):
            spark.sql("insert overwrite stored (shard_key, payload) select * from fresh")
    finally:
        spark.sql("drop table stored")
    with pytest.raises(Exception, match=r"the url of a table has a password, which the catalog would keep: say file"):
        spark.sql("create table stored using shardq options (url 'redis://:secret@nowhere', queue 'q')")
    with pytest.raises(Exception, match="there are no options: Spark keeps those of CREATE TABLE to itself"):
        spark.sql("create table stored using shardq options (queue 'q') as select * from fresh")


def test_settings_of_the_session_are_defaults(spark: Any, settings: Any, url: str, queue: Queue) -> None:
    settings.set("spark.shardq.url", url)
    register(spark)
    queue.write(b"x", shard_key="t")
    held = spark.read.format("shardq").options(subscribe=queue.name)
    assert held.load().count() == 1
    settings.set("spark.shardq.timeout", "0")
    register(spark)
    with pytest.raises(Exception, match="option timeout must be a number of seconds from"):
        held.load().count()
    assert held.option("TIMEOUT", "30").load().count() == 1
    settings.set("spark.shardq.url", "redis://user:secret@localhost")
    with pytest.raises(
        ConfigError, match=r"spark\.shardq\.url has a password, .* say file:PATH or env:NAME"
    ) as refused:
        register(spark)
    assert "secret" not in str(refused.value)


def test_a_read_names_its_queue_once(spark: Any, url: str) -> None:
    with pytest.raises(Exception, match="give the option queue, or say by subscribe"):
        spark.read.format("shardq").options(url=url, queue="a", subscribe="b").load()
    with pytest.raises(Exception, match="unknown option 'queu' of format shardq"):
        spark.read.format("shardq").options(url=url, queu="a").load()
