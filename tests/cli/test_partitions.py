"""`shardq partitions` and `shardq resize`, and what the doctor says of partitions."""

from __future__ import annotations

from typing import Any

import pytest

from shardq import Client
from shardq.cli.findings.of_partitions import UNSEEN_SECONDS, of_partitions
from shardq.model import QueueStats
from shardq.model.partitions import Partition
from tests.cli.conftest import Command

NODES = ["a:1", "b:1", "c:1"]


@pytest.mark.runs_in("test-all")  # all clients must hear of each change
def test_a_queue_is_resized_and_its_partitions_are_shown(cli: Command) -> None:
    with Client.from_url(cli.url) as client:
        queue = client.queue("jobs", streams=2, streams_per_shard=2)
        queue.write("x", shard_key="a")
    told = cli("resize", "jobs", "--partitions", "3", "--yes")
    assert told.out == "queue 'jobs' has 3 partitions: shardq partitions jobs\n"
    (changed,) = cli("resize", "jobs", "--partitions", "2", "--yes", "--json").objects
    assert changed == {"queue": "jobs", "partitions": 2, "read": 3}
    rows = cli("partitions", "jobs", "--json").objects
    assert [(each["partition"], each["state"], each["node"], each["backlog"]) for each in rows] == [
        (0, "written", "", 1),
        (1, "written", "", 0),
        (2, "draining", "", 0),
    ]
    assert "draining" in cli("partitions", "jobs").out


def test_what_would_be_done_is_told_and_what_cannot_be(cli: Command) -> None:
    with Client.from_url(cli.url) as client:
        client.queue("jobs", streams=2, streams_per_shard=2).write("x", shard_key="a")
    would = cli("resize", "jobs", "--partitions", "3", "--dry-run")
    assert would.out == "would write to 3 partitions of queue 'jobs' instead of 1\n"
    (row,) = cli("partitions", "jobs").out.splitlines()[1:]
    assert row.split()[:4] == ["0", "-", "written", "1"]
    assert "from 1 to 64" in cli("resize", "jobs", "--partitions", "65", "--yes").err
    assert "there is no queue 'nobody'" in cli("partitions", "nobody").err


def part(number: int, node: str = "", *, is_written: bool = True, **numbers: Any) -> Partition:
    usual: dict[str, Any] = {"queue": "jobs", "time": 0.0, "backlog": 0, "in_flight": 0, "delayed": 0, "dead": 0}
    return Partition(number, node, is_written, QueueStats(**{**usual, "oldest_age": None, "streams": (), **numbers}))


def test_two_that_share_a_node_while_another_has_none_are_a_finding() -> None:
    (found,) = of_partitions("jobs", [part(0, "a:1"), part(1, "b:1"), part(2, "b:1")], NODES)
    assert (found.label, found.line) == ("partitions:jobs", "1 and 2 share b:1; c:1 has none.")
    assert "shardq resize jobs --partitions 4" in found.mend


@pytest.mark.parametrize(
    "parts",
    [
        [part(0, "a:1")],
        [part(0, "a:1"), part(1, "b:1")],
        [part(0, "a:1"), part(1, "b:1"), part(2, "c:1"), part(3, "c:1")],
        [part(0, "a:1"), part(1, "a:1", is_written=False)],
        [part(0), part(1)],
    ],
)
def test_others_are_placed_well(parts: list[Partition]) -> None:
    assert [*of_partitions("jobs", parts, NODES if parts[0].node else [""])] == []


def test_messages_that_readers_of_the_head_alone_do_not_see_are_a_finding() -> None:
    waits = part(1, backlog=5, runnable=5, oldest_age=2 * UNSEEN_SECONDS)
    (found,) = of_partitions("jobs", [part(0), waits, part(2)], [""])
    assert found.line == "5 messages wait for 2 min, and none of the head."
    assert "version before partitions" in found.mend
    for head in (part(0, oldest_age=UNSEEN_SECONDS), part(0, paused_until=9e9)):
        assert [*of_partitions("jobs", [head, waits], [""])] == []
    limited = part(1, backlog=5, runnable=0, oldest_age=2 * UNSEEN_SECONDS)
    assert [*of_partitions("jobs", [part(0), limited], [""])] == []
