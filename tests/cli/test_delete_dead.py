"""`shardq delete-dead`, and what other commands say of dead letters."""

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
    told = cli("delete-dead", "jobs", "--shard-key", "acct-7", "--dry-run")
    assert (told.out, queue.stats().dead) == ("3 dead letters would be deleted\n", 5)
    assert cli.terminal("delete-dead", "jobs", "--older-than", "0", typed="n\n").code == 1
    assert cli("delete-dead", "jobs", "--id", ids[0], "--id", others[0], "--yes").out == "2 dead letters deleted\n"
    [told_json] = cli("delete-dead", "jobs", "--reason", "acct-7", "--count", "1", "--yes", "--json").objects
    assert told_json == {"queue": "jobs", "deleted": 1}
    assert [each.message_id for each in queue.dead()] == [ids[2], others[1]]
    assert cli("delete-dead", "jobs", "--older-than", "0", "--yes").code == 0
    assert cli("delete-dead", "jobs", "--older-than", "0", "--yes").code == 3
    assert queue.stats().dead == 0


@pytest.mark.runs_in("test-all")
def test_it_must_be_said_which(cli: Command, queue: Queue) -> None:
    (dead,) = kill(queue, 1, "t")
    for words in ([], ["--count", "3"], ["--id", dead, "--older-than", "0"]):
        told = cli("delete-dead", "jobs", *words, "--yes")
        assert (told.code, told.err.count("\n")) == (2, 1)
        assert "say which" in told.err
    assert queue.stats().dead == 1


def test_a_dead_letter_is_told_as_one(cli: Command, queue: Queue) -> None:
    (dead,) = kill(queue, 1, "t")
    assert "it is a dead letter" in cli("cancel", "jobs", dead).out
    assert "a dead letter for" in cli("message", "jobs", dead).out
    [told] = cli("message", "jobs", dead, "--json").objects
    assert (told["state"], told["reason"]) == ("dead", "poison of t")
