"""`shardq purge --dead`, and what other commands say of dead letters."""

from __future__ import annotations

import pytest

from shardq import Queue
from tests.cli.conftest import Command


def kill(queue: Queue, count: int, shard_key: str) -> list[str]:
    ids = []
    for number in range(count):
        queue.write(number, shard_key=shard_key)
        delivery = queue.read()
        delivery.reject(f"poison of {shard_key}")
        ids.append(delivery.message_id)
    return ids


@pytest.mark.runs_in("test-all")
def test_dead_letters_are_deleted(cli: Command, queue: Queue) -> None:
    ids, others = kill(queue, 3, "acct-7"), kill(queue, 2, "acct-8")
    told = cli("purge", "jobs", "--dead", "--tenant", "acct-7", "--dry-run")
    assert told.out == "would delete 3 dead letters of tenant acct-7 in queue 'jobs'\n"
    assert cli("purge", "jobs", "--dead", "--id", ids[0], "--dry-run", "--json").objects[0]["found"] == 1
    assert queue.stats().dead == 5
    assert cli.terminal("purge", "jobs", "--dead", typed="n\n").code == 1
    assert cli("purge", "jobs", "--dead", "--id", ids[0], "--id", others[0], "--yes").out == "2 dead letters deleted\n"
    [told_json] = cli("purge", "jobs", "--dead", "--reason", "acct-7", "--limit", "1", "--yes", "--json").objects
    assert (told_json["queue"], told_json["done"], told_json["state"]) == ("jobs", 1, "done")
    assert [each.message_id for each in queue.dead()] == [ids[2], others[1]]
    assert cli("purge", "jobs", "--dead", "--older-than", "1h", "--yes").code == 3
    assert cli("purge", "jobs", "--dead", "--yes").out == "2 dead letters deleted\n"
    assert cli("purge", "jobs", "--dead", "--yes").code == 3
    assert queue.stats().dead == 0


@pytest.mark.runs_in("test-all")
def test_all_of_a_tenant_is_removed_and_nothing_of_others(cli: Command, queue: Queue) -> None:
    kill(queue, 2, "acct-7")
    queue.write_many([(n, "acct-7") for n in range(5)] + [(n, "acct-8") for n in range(3)])
    queue.write("later", shard_key="acct-7", delay=600)
    told = cli("purge", "jobs", "-t", "acct-7", "--dry-run")
    assert told.out == ("would remove all of acct-7 in queue 'jobs' for good (5 waiting, 1 delayed, 2 dead letters)\n")
    told = cli("purge", "jobs", "-t", "acct-7", "--yes", "--by", "ada", "--note", "ticket 812")
    assert told.out == "acct-7: 5 waiting, 1 delayed, 2 dead letters removed; 0 in flight\n"
    now = queue.stats()
    assert (now.backlog, now.delayed, now.dead) == (3, 0, 0)


def test_a_dead_letter_is_told_as_one(cli: Command, queue: Queue) -> None:
    (dead,) = kill(queue, 1, "t")
    assert "`shardq purge --dead --id`" in cli("cancel", "jobs", dead).out
    assert "a dead letter for" in cli("message", "jobs", dead).out
    [told] = cli("message", "jobs", dead, "--json").objects
    assert (told["state"], told["reason"]) == ("dead", "poison of t")
