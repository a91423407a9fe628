"""Queues found by a pattern: on every node of a cluster, with the rights that the docs name."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from shardq import BackendError, Client
from shardq.errors import ConfigError
from shardq.spark.options import Reading, parsed
from shardq.spark.source import ShardqDataSource
from shardq.spark.subscription import Subscription
from tests.servers import Cluster, Server
from tests.spark.test_rights import url


def matching(url: str, pattern: str, **more: str) -> tuple[str, ...]:
    return Subscription(parsed(Reading, {"url": url, "subscribePattern": pattern, **more})).queues()


@pytest.mark.runs_in("test-all")
def test_queues_are_found_on_every_node_of_a_cluster(cluster: Cluster) -> None:
    names = [f"day-{at}" for at in range(20)]
    with Client.from_url(cluster.url) as client:
        for name in (*names, "week-1"):
            client.queue(name, streams=2, journal=100 if name < "day-2" else 0).read_many(1)
        client.bind("a.*", "day-1")
    assert sorted(matching(cluster.url, r"day-\d+")) == sorted(names)
    assert sorted(matching(cluster.url, ".*")) == sorted([*names, "week-1"])
    assert matching(cluster.url, "day") == ()
    assert sorted(matching(cluster.url, ".*", state="journal")) == sorted(name for name in names if name < "day-2")


def test_a_pattern_needs_one_right_more_than_reading(server: Server) -> None:
    with Client.from_url(server.url) as client:
        client.queue("jobs", streams=2).read_many(1)
    analyst = url(server, "analyst")
    with pytest.raises(BackendError, match="denies this user"):
        matching(analyst, "jobs")
    server.run("ACL", "SETUSER", "analyst", "+scan")
    assert matching(analyst, "jobs") == ("jobs",)
    server.run("ACL", "DELUSER", "analyst")


def test_overwriting_says_what_to_do_instead() -> None:
    with pytest.raises(ConfigError, match=r"use mode\('append'\); .* run `shardq purge jobs` first"):
        ShardqDataSource({"queue": "jobs"}).writer(StructType(), overwrite=True)


def test_one_way_to_say_which_queues_is_needed() -> None:
    for given in ({}, {"subscribe": "a", "subscribePattern": "b"}):
        with pytest.raises(ConfigError, match="give either option subscribe, or subscribePattern"):
            parsed(Reading, {"url": "redis://x", **given})
    with pytest.raises(ConfigError, match="no regular expression"):
        parsed(Reading, {"url": "redis://x", "subscribePattern": "("})
    with pytest.raises(ConfigError, match="must not be above maxOffsetsPerTrigger"):
        parsed(
            Reading,
            {"url": "redis://x", "subscribe": "a", "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"},
        )
