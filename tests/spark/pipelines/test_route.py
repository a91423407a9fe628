"""Events with topics go to the queues that a router of the same bindings says, each once."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shardq.client import Client
from shardq.errors import ConfigError, PipelineFailed
from shardq.routing import Router
from shardq.spark.pipelines import files, inputs, load
from shardq.spark.pipelines.load import LoadColumns
from shardq.spark.pipelines.report import PipelineProgress, Report
from shardq.spark.pipelines.route import routed, write
from shardq.spark.pipelines.session import explained
from tests.spark.pipelines.conftest import Shardq
from tests.spark.rows import drained

pytestmark = [pytest.mark.timeout(300), pytest.mark.runs_in("test-all")]
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
    found = routed(events, LoadColumns("tenant", "body"), list(router.bindings()))
    for _ in range(2):
        progress = PipelineProgress(Report("route"))
        options = {"url": url, "create": "true"}
        counts = write(found, expected, "r-1", options, progress)
        assert counts == dict(expected)
    for queue in expected:
        bodies = sorted(int(each.payload) for each in drained(client.queue(queue, create=True)))
        assert bodies == [at for at, topic in enumerate(topics) if queue in router.match(topic)]


def test_what_cannot_be_routed_is_refused(spark: Any) -> None:
    events = spark.sql("select 'a..b' as topic, 1 as x")
    router, columns = Router(), LoadColumns("topic")
    with pytest.raises(ConfigError, match="the router has no bindings"):
        routed(events, columns, [])
    router.bind("#", "jobs")
    with pytest.raises(
        ConfigError, match="events to route need the column subject string; the columns there are: topic"
    ):
        routed(events, columns, list(router.bindings()), "subject")
    with pytest.raises(PipelineFailed, match="topic"), explained():
        routed(events, columns, list(router.bindings())).collect()


def test_a_route_by_another_topic_is_another_one(
    shardq: Shardq, client: Client, queue_name: str, tmp_path: Path
) -> None:
    client.bind("a.#", queue_name, router=queue_name)
    path = tmp_path / "events.CSV"
    path.write_text("kind;place;tenant\na.x;b.y;007\na.z;a.y;008\n")
    words = ("route", str(path), "--router", queue_name, "--key", "tenant", "--option", "sep=;", "--topic")
    assert shardq.report(*words, "kind")["queues"] == {queue_name: 2}
    assert shardq.report(*words, "place")["queues"] == {queue_name: 1}
    assert shardq.report(*words, "kind")["queues"] == {queue_name: 2}
    found = drained(client.queue(queue_name, create=True))
    assert sorted(each.shard_key for each in found) == ["007", "008", "008"]
    assert found[0].payload.keys() == {"kind", "place", "tenant"}


def test_events_without_a_good_topic_go_to_the_error_queue(
    shardq: Shardq, client: Client, queue_name: str, tmp_path: Path
) -> None:
    errors = f"{queue_name}.errors"
    for at in range(3):
        client.bind(f"a.{at}", f"{queue_name}.{at}", router=queue_name)
    path = tmp_path / "events.json"
    topics = ["a.0", None, "a.1", "a..b", "a.1", "other"]
    rows = ({"topic": topic, "tenant": f"t-{at}", "n": at} for at, topic in enumerate(topics))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("route", str(path), "--router", queue_name, "--key", "tenant")
    code, _, err = shardq(*words)
    assert (code, "--errors" in err) == (1, True), err
    for diverted in (2, 0):
        report = shardq.report(*words, "--errors", errors)
        assert report["queues"] == {f"{queue_name}.0": 1, f"{queue_name}.1": 2}
        assert (report["diverted"], report["diverted_before"]) == (diverted, 2 - diverted)
        assert any(f"{diverted} of them went to {errors} in this run" in remark for remark in report["remarks"])
    assert sorted(each.payload["payload"]["n"] for each in drained(client.queue(errors, create=True))) == [1, 3]
    assert sorted(
        each.payload["n"] for at in (0, 1) for each in drained(client.queue(f"{queue_name}.{at}", create=True))
    ) == [
        0,
        2,
        4,
    ]


def test_one_job_writes_to_all_queues(shardq: Shardq, client: Client, queue_name: str, tmp_path: Path) -> None:
    """One for each took 24 seconds for 40 queues; a queue that exists keeps its settings, the others are created."""
    for at in range(40):
        client.bind(f"t.{at}", f"{queue_name}.{at}", router=queue_name)
    path = tmp_path / "events.json"
    rows = ({"topic": f"t.{at % 40}", "tenant": f"t-{at % 7}", "n": at} for at in range(4000))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = shardq.report("route", str(path), "--router", queue_name, "--key", "tenant")
    assert report["queues"] == {f"{queue_name}.{at}": 100 for at in range(40)}
    assert [name for name in report["seconds"] if name.startswith("routing")] == [f"routing as {report['id']}"]
    found = drained(client.queue(f"{queue_name}.7", create=True))
    assert sorted(each.payload["n"] for each in found) == list(range(7, 4000, 40))


@pytest.mark.parametrize("size", [100, 10_000], ids=["in pieces", "whole"])
def test_a_bad_event_is_named_by_its_line_though_each_queue_gets_only_some(
    shardq: Shardq, client: Client, queue_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    for module in (files, load, inputs):
        monkeypatch.setattr(module, "SPLIT_SETTINGS", dict.fromkeys(files.SPLIT_SETTINGS, str(size)))
    for queue, pattern in (("a", "a"), ("b", "b"), ("all", "*")):
        client.bind(pattern, f"{queue_name}.{queue}", router=queue_name)
    events = [{"topic": "ab"[at % 2], "tenant": "t", "at": at} for at in range(40)]
    del events[32]["tenant"]
    (tmp_path / "events.json").write_text("".join(json.dumps(each) + "\n" for each in events))
    code, _, err = shardq("route", str(tmp_path / "events.json"), "--router", queue_name, "--key", "tenant")
    assert code == 1
    assert re.search(r"line 33 of file:/+\S+/events.json is no valid message: shard_key is null", err), err
