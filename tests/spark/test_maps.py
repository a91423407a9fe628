"""Maps in payloads are maps for those who read messages, and again for Spark."""

from __future__ import annotations

from typing import Any

import pytest

from shardq.client import Queue
from tests.spark.rows import drained, write

pytestmark = [pytest.mark.timeout(300), pytest.mark.runs_in("test-all")]

NESTED = "struct<m: map<string, map<int, double>>, l: array<map<string, array<int>>>, n: map<bigint, string>>"
VALUES = [
    {"m": {"a": {1: 0.5, -2: None}, "b": None}, "l": [{"x": [1, 2]}, {}, None], "n": {7: "seven"}},
    {"m": {}, "l": [], "n": None},
    {"m": None, "l": None, "n": {}},
]


@pytest.mark.parametrize("codec", ["json", "msgpack", ""])
def test_maps_go_there_and_back(spark: Any, url: str, queue: Queue, codec: str) -> None:
    frame = spark.createDataFrame([("t", value) for value in VALUES], f"shard_key string, payload {NESTED}")
    write(frame.coalesce(1), queue, url, codec=codec)
    read = spark.read.format("shardq").options(url=url, subscribe=queue.name).schema(f"payload {NESTED}").load()
    found = [row.payload.asDict(recursive=True) for row in read.collect()]
    assert len(found) == len(VALUES)
    assert all(value in found for value in VALUES)
    names = (str, str) if codec == "json" else (int, int)
    payloads = [each.payload for each in drained(queue)]
    first = next(each for each in payloads if each["n"])
    assert first["m"] == {"a": {names[0](1): 0.5, names[0](-2): None}, "b": None}
    assert first["l"] == [{"x": [1, 2]}, {}, None]
    assert first["n"] == {names[1](7): "seven"}


def test_a_map_as_the_whole_payload(spark: Any, url: str, queue: Queue) -> None:
    write(spark.sql("select 't' as shard_key, map('a', 1, 'b', 2) as payload"), queue, url)
    typed = spark.read.format("shardq").options(url=url, subscribe=queue.name).schema("payload map<string, int>")
    assert [row.payload for row in typed.load().collect()] == [{"a": 1, "b": 2}]
    assert [each.payload for each in drained(queue)] == [{"a": 1, "b": 2}]


@pytest.mark.parametrize(
    ("codec", "key"),
    [("", "named_struct('a', 1)"), ("", "array(1)"), ("json", "true"), ("json", "cast('a' as binary)")],
)
def test_keys_that_no_map_can_have_are_refused(spark: Any, url: str, queue: Queue, codec: str, key: str) -> None:
    """On the driver, wherever the map is."""
    frame = spark.sql(f"select 't' as shard_key, array(named_struct('m', map({key}, 1))) as payload")
    with pytest.raises(Exception, match=r"a map in column payload has keys of type .*: make them text or numbers"):
        write(frame, queue, url, codec=codec)
    assert queue.stats().written == 0
