"""Events with topics go to the queues that a router of the same bindings says, each once."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from shardq.client import Client
from shardq.errors import ConfigError, PipelineFailed
from shardq.routing import Router
from shardq.spark.pipelines.load import Columns, messages
from shardq.spark.pipelines.report import Progress, Report
from shardq.spark.pipelines.route import routed, write
from shardq.spark.pipelines.session import explained
from tests.spark.rows import drained

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]
WORDS = ("orders", "eu", "us", "created", "paid")


def test_each_event_goes_to_the_queues_of_its_topic_once(
    spark: Any, url: str, client: Client, queue_name: str, rng: random.Random
) -> None:
    router = Router()
    for at in range(12):
        words = [rng.choice((*WORDS, "*", "#")) for _ in range(rng.randrange(1, 4))]
        router.bind(".".join(words), f"{queue_name}.{at % 3}")
    topics = [".".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 4))) for _ in range(200)]
    rows = [(topic, f"t-{at % 5}", str(at)) for at, topic in enumerate(topics)]
    events = spark.createDataFrame(rows, "topic string, tenant string, body string")
    expected = Counter(queue for topic in topics for queue in router.match(topic))
    found = routed(events, list(router.bindings()))
    for _ in range(2):
        progress = Progress(Report("route"))
        options = {"url": url, "create": "true"}
        counts = write(found, lambda own: messages(own, Columns("tenant", "body")), "r-1", options, progress)
        assert counts == dict(expected)
    for queue in expected:
        bodies = sorted(int(each.payload) for each in drained(client.queue(queue)))
        assert bodies == [at for at, topic in enumerate(topics) if queue in router.match(topic)]


def test_what_cannot_be_routed_is_refused(spark: Any) -> None:
    events = spark.sql("select 'a..b' as topic, 1 as x")
    router = Router()
    with pytest.raises(ConfigError, match="the router has no bindings"):
        routed(events, [])
    router.bind("#", "jobs")
    with pytest.raises(ConfigError, match="events to route need the column subject; the columns there are: topic, x"):
        routed(events, list(router.bindings()), "subject")
    with pytest.raises(PipelineFailed, match="topic"), explained():
        routed(events, list(router.bindings())).collect()
