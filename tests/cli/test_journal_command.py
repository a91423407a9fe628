"""`shardq journal`."""

from __future__ import annotations

import signal
import subprocess

import pytest

from shardq import Queue
from shardq.partitions.homes import home
from tests.cli.conftest import Command
from tests.waiting import eventually


def test_it_says_how_to_begin_one(cli: Command, queue: Queue) -> None:
    told = cli("journal", "jobs")
    assert (told.code, told.out) == (3, "")
    assert "shardq configure jobs journal=100000" in told.err
    assert cli("journal", "none").code == 3


@pytest.mark.runs_in("test-all")
def test_it_prints_the_newest_events_or_all_of_a_message(cli: Command, queue: Queue) -> None:
    assert cli("configure", "jobs", "journal=1000", "--yes").code == 0
    first, *_ = queue.write_many([(b"secret", b"a\xff\x1b[31m"), (b"secret", "b"), (b"secret", "c")])
    while found := queue.read_many(3):
        for each in found:
            each.nack(delay=60 if each.message_id == first else 0) if each.count < 2 else each.ack()
    told = cli("journal", "jobs", "--message", first)
    lines = told.out.replace("\n    ", "  ").splitlines()
    assert [line.split("  ")[2].strip() for line in lines] == ["written", "delivered", "nacked"]
    assert "a\\xff\\x1b[31m" in told.out
    assert "delivery 1  due in 60 s  by " in lines[2]
    assert "secret" not in told.out
    assert told.err == ""
    newest = cli("journal", "jobs", "--json", "--limit", "2")
    assert [each["kind"] for each in newest.objects] == ["acked", "acked"]
    assert cli("journal", "jobs", "--tenant", "b", "--json").objects[0]["shard_key"] == "b"
    assert cli("journal", "jobs", "--tenant", "z").code == 3


def test_it_says_who_asked_for_it_and_why(cli: Command, queue: Queue) -> None:
    queue.configure(journal=100)
    assert cli("pause", "jobs", "--by", "jonas", "--note", "ticket 812", "--yes").code == 0
    assert "by jonas  ticket 812" in " ".join(cli("journal", "jobs", "--limit", "1").out.split("\n    "))
    (event,) = cli("journal", "jobs", "--limit", "1", "--json").objects
    assert (event["kind"], event["by"], event["note"]) == ("paused", "jonas", "ticket 812")


def test_it_says_what_was_lost(cli: Command, queue: Queue) -> None:
    queue.configure(journal=10)
    for n in range(200):
        queue.write(str(n), shard_key="a")
    told = cli("journal", "jobs", "--after", "1")
    assert len(told.out.splitlines()) <= 110
    assert "were lost" in told.err


def test_it_says_in_which_partition_it_was_lost(cli: Command, queue: Queue) -> None:
    parts = queue.client.queue("parts", partitions=3, journal=3)
    tenant = next(f"t{n}" for n in range(99) if home(f"t{n}", 3) == 2)
    for _ in range(9):
        parts.write_many([("x", tenant)] * 100)
    told = cli("journal", "parts", "--after", "0")
    number = told.out.split()[0]
    assert f" of partition 2 before number {number} were lost" in told.err
    assert "partition 0" not in told.err


@pytest.mark.runs_in("test-all")
def test_it_follows_what_happens(cli: Command, queue: Queue) -> None:
    queue.configure(journal=100)
    pipe = subprocess.PIPE
    with cli.start("journal", "jobs", "--follow", "--json", stdout=pipe, stderr=pipe) as process:
        assert process.stdout
        for kind, act in (("written", lambda: queue.write("x", shard_key="t")), ("delivered", queue.read)):
            act()
            eventually(lambda kind=kind: f'"{kind}"'.encode() in process.stdout.readline(), 30)  # type: ignore[misc]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=150)
        assert process.returncode == 130


@pytest.mark.runs_in("test-all")
def test_it_follows_a_queue_that_is_deleted_and_made_anew(cli: Command, queue: Queue) -> None:
    """It counted an event of the deleted one as lost, or ended."""
    queue.configure(journal=100)
    pipe = subprocess.PIPE
    with cli.start("journal", "jobs", "--follow", "--json", stdout=pipe, stderr=pipe) as process:
        assert process.stdout
        assert process.stderr
        assert b"configured" in process.stdout.readline()
        queue.delete(expected=None)
        assert b"was deleted; if it is recreated" in process.stderr.readline()
        queue.read_many(1)
        queue.configure(journal=100)
        queue.write("x", shard_key="t")
        assert b"was recreated" in process.stderr.readline()
        assert b"configured" in process.stdout.readline()
        assert b"written" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=150)
        assert (process.returncode, b"lost" in told) == (130, False)
