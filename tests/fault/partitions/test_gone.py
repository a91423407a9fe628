"""A partition that is gone: the others are read on, and what shows the queue says so (test_lost.py: it comes again)."""

from __future__ import annotations

from typing import Any

import pytest

from shardq import Client
from shardq.cli import main
from shardq.model.partitions import map_of
from shardq.ops.operate import queues
from shardq.partitions.homes import home
from shardq.partitions.map import PartitionMap
from tests.dashboard.scenery import look_at
from tests.servers import Server

JOBS = "jobs"
PARTITIONS = 3
TENANTS = {home(f"tenant-{number}", PARTITIONS): f"tenant-{number}" for number in range(20)}


def test_a_partition_that_is_gone_leaves_the_others_what_they_have(server: Server, queue_name: str) -> None:
    with Client.from_url(server.url) as client:
        queue = client.queue(queue_name, partitions=PARTITIONS, streams=4, streams_per_shard=2)
        found = PartitionMap.parse(map_of(queue.declare().partitions))
        keys: Any = server.client().keys(f"shardq:{{{found.name_of(queue_name, 1)}}}:*")
        assert server.run("DEL", *keys) == len(keys) > 0
        queue.write_many([(n, TENANTS[number]) for n in range(5) for number in (0, 2)])
        assert sorted(each.payload for _ in range(10) for each in queue.read_many(1)) == sorted([*range(5)] * 2)


def test_a_partition_that_is_gone_is_told_and_made_anew(
    server: Server, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The page and the command line show the others, and say so. To resize makes it as the head is."""
    with Client.from_url(server.url) as client:
        queue = client.queue(JOBS, partitions=PARTITIONS, streams=4, streams_per_shard=2)
        found = PartitionMap.parse(map_of(queue.declare().partitions))
        queue.configure(max_deliveries=7)
        queue.write_many([(number, TENANTS[number]) for number in range(PARTITIONS)])
        keys: Any = server.client().keys(f"shardq:{{{found.name_of(JOBS, 1)}}}:*")
        server.run("DEL", *keys)
        assert [(each.number, each.is_gone, each.stats is None) for each in queue.partitions()] == [
            (0, False, False), (1, True, True), (2, False, False),
        ]  # fmt: skip
        assert main(["--url", server.url, "partitions", JOBS]) == 0
        assert "gone" in capsys.readouterr().out
        assert main(["--url", server.url, "server", "doctor", JOBS]) == 1
        told = " ".join(capsys.readouterr().out.split())
        assert "1 partition of it is gone: 1." in told
        assert f"shardq resize {JOBS} --partitions 3 --yes" in told
        screen = look_at(server.url, "queue", JOBS)
        assert (screen["figures"]["waiting"], screen["said"]["line"] != []) == (2, True)
        assert [(row["silent"], row["gone"]) for row in screen["partitions"]] == [
            (False, False),
            (True, True),
            (False, False),
        ]
        assert look_at(server.url, "overview")["queues"][0]["waiting"] == 2
        assert {row["name"] for row in look_at(server.url, "tenants", JOBS)["rows"]} == {TENANTS[0], TENANTS[2]}
        assert main(["--url", server.url, "resize", JOBS, "--partitions", "3", "--yes"]) == 0
        assert f"partition 1 of queue {JOBS!r} was gone" in caplog.text
        queue.write("anew", shard_key=TENANTS[1])
        assert sorted(str(each.payload) for each in queue.read_many(9)) == ["0", "2", "anew"]
        layer: Any = queue
        assert client.run(queues.settings(layer.state.parts.states[1])).max_deliveries == 7
