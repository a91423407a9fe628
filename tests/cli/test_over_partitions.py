"""Every command says of a queue with partitions what it says of one without that has the same messages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest

from shardq import Client, Queue
from shardq.partitions.homes import home
from tests.cli.conftest import Command, Told
from tests.cli.test_every_command import EVERY, NOTHING
from tests.servers import Server
from tests.verbs import SETTINGS, any_id, finished, furnish
from tests.waiting import eventually

PARTITIONS = 3
OTHERWISE: Final = {
    "configure": "it lists the setting",
    "configure, streams": "it lists the setting",
    "export": "it has the setting",
    "journal": "a page of the last events: those of one call have another order in each partition",
    "message": "it is another message",
    "message, its result": "it is another message",
    "partitions": "it is of each of them",
    "peek": "a page has the messages of one partition after those of another",
    "read": "it is another message",
    "resize": "what drains is read for a while",
    "server doctor": "memory and times of a server",
    "serve token": "a token is made up",
    "serve token, of a person": "a token is made up",
    "stats": "each partition has its own streams",
    "tenants, one": "its neighbours are those in its partition",
    "topics unbind": "it names nothing of a queue",
}
"""Of which the text is another one, and why; the exit code is the same."""
IDS: Final = re.compile(r"\d{13}-\d+-[\w~:.@-]+")
TIMES: Final = re.compile(r"\d[\d.,]* ?(ms|s|min|h)\b|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|by \S+-\d+\b")


def furnished(client: Client, **settings: Any) -> Queue:
    """The queue of the tests of all commands, once nothing comes due any more."""
    queue = client.queue("jobs", **SETTINGS, **settings)
    queue.declare()
    furnish(queue)
    assert {home(each.shard_key, PARTITIONS) for each in queue.tenants()} == {0, 1, 2}
    eventually(lambda: queue.stats().delayed == 0)
    return queue


def said(cli: Command, name: str, file: Path, **settings: Any) -> Told:
    """What a command says of a queue with these settings, and the same messages."""
    with Client.from_url(cli.url) as client:
        queue = furnished(client, **settings)
        made = file.with_name(f"jobs-{len(settings)}")
        places = {"FILE": str(file), "JOBS": str(made), "WAITING": any_id(queue), "DONE": finished(queue)}
        words = [places.get(each, each) for each in EVERY[name].split()]
        return cli(*name.partition(",")[0].split(), *words)


def plain(text: str) -> list[str]:
    """The lines of a text in an order of their own, without ids, times and the room that these take."""
    return sorted(" ".join(TIMES.sub("TIME", IDS.sub("ID", line)).split()) for line in text.splitlines())


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("name", [each for each in EVERY if "FOLDER" not in EVERY[each]])  # those ask no queue
def test_each_command_says_the_same_of_a_queue_with_partitions(
    cli: Command, cli_server: Server, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "queues.toml"
    file.write_text("[queues.more]\nstreams = 2\n")
    one = said(cli, name, file)
    cli_server.run("FLUSHALL")
    parted = said(cli, name, file, partitions=PARTITIONS)
    assert parted.code == one.code, parted.err
    assert one.code in ({0, 3} if name in NOTHING else {0})
    if name not in OTHERWISE:
        assert (plain(parted.out), plain(parted.err)) == (plain(one.out), plain(one.err))


def test_numbers_are_those_of_all_partitions(cli: Command) -> None:
    with Client.from_url(cli.url) as client:
        queue = furnished(client, partitions=PARTITIONS)
        now = queue.stats()
    (stats,) = cli("stats", "jobs", "--json").objects
    assert (stats["backlog"], stats["dead"], stats["written"]) == (now.backlog, 3, now.written)
    assert cli("stats", "jobs", "--field", "load").out.strip() == str(now.runnable)
    (row,) = cli("queues", "--json").objects
    assert row["backlog"] == now.backlog
    # Those that have come due are delayed until a read has seen them.
    assert len(cli("peek", "jobs", "-n", "500", "--json").objects) == now.backlog - 3


def test_a_change_by_a_filter_counts_and_changes_in_all_partitions(cli: Command) -> None:
    with Client.from_url(cli.url) as client:
        queue = furnished(client, partitions=PARTITIONS)
        waits = sum(each.backlog for each in queue.tenants() if each.shard_key in ("a", "b", "c", "dies"))
        looked = cli("cancel", "jobs", "--older-than", "0s", "--dry-run", "--json")
        (found,) = looked.objects
        assert found["found"] == queue.stats().backlog >= waits
        assert cli("redrive", "jobs", "--yes").out.startswith("3 dead letters")
        assert cli("cancel", "jobs", "--older-than", "0s", "--yes").code == 0
        eventually(lambda: queue.len() == 0)


@pytest.mark.parametrize("partitions", [1, PARTITIONS])
def test_a_message_is_found_by_its_id(cli: Command, partitions: int) -> None:
    with Client.from_url(cli.url) as client:
        queue = client.queue("jobs", streams=4, partitions=partitions, result_ttl=60)
        ids = queue.write_many([("x", tenant) for tenant in ("dies", "a", "b", "c")])
        for message_id, tenant in zip(ids, ("dies", "a", "b", "c"), strict=True):
            (told,) = cli("message", "jobs", message_id, "--json").objects
            assert (told["message_id"], told["shard_key"], told["state"]) == (message_id, tenant, "waiting")
        assert all(cli("cancel", "jobs", each).code == 0 for each in ids)
        assert queue.len() == 0
