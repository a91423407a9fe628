"""Actions by a filter: counted first, shown while they go on, stopped by Ctrl-C, and gone on with."""

from __future__ import annotations

import re
import signal
import subprocess

import pytest

from shardq import Queue
from tests.cli.conftest import Command
from tests.waiting import eventually


def bury(queue: Queue, count: int, shard_key: str = "t") -> None:
    """Make dead letters."""
    queue.write_many([(number, shard_key) for number in range(count)])
    while deliveries := queue.read_many(100):
        for each in deliveries:
            each.reject("bad input")


@pytest.mark.runs_in("test-all")
def test_what_a_filter_selects_is_counted_and_then_moved(cli: Command, queue: Queue) -> None:
    bury(queue, 3, "acct-7")
    bury(queue, 2, "acct-8")
    told = cli("redrive", "jobs", "-t", "acct-7", "--error", "bad", "--dry-run")
    assert told.out == "would redrive 3 dead letters of tenant acct-7, error bad in queue 'jobs'\n"
    assert cli("redrive", "jobs", "-t", "acct-7", "--older-than", "2h", "--yes").code == 3
    told = cli("redrive", "jobs", "-t", "acct-7", "--error", "bad", "--yes", "--by", "ada", "--note", "mended")
    assert (told.code, told.out) == (0, "3 dead letters moved\n")
    [action] = queue.actions()
    assert (action.by, action.note, action.done, action.state) == ("ada", "mended", 3, "done")
    assert queue.stats().dead == 2


@pytest.mark.runs_in("test-all")
def test_an_action_that_ctrl_c_stops_says_how_to_go_on_and_each_is_moved_once(cli: Command, queue: Queue) -> None:
    bury(queue, 200)
    words = ("redrive", "jobs", "--rate", "20", "--yes")
    with cli.start(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        eventually(lambda: queue.stats().dead < 200, 60)
        process.send_signal(signal.SIGINT)
        out, err = (each.decode() for each in process.communicate(timeout=150))
    assert process.returncode == 130
    assert err == "shardq: stopped: the same command continues with the rest\n"
    moved = re.fullmatch(r"(\d+) dead letters? moved\n", out)
    assert moved
    now = queue.stats()
    assert (now.dead, now.backlog) == (200 - int(moved[1]), int(moved[1]))
    assert [each.state for each in queue.actions()] == ["stopped"]
    assert cli("redrive", "jobs", "--yes").out == f"{200 - int(moved[1])} dead letters moved\n"
    assert (queue.stats().dead, queue.stats().backlog) == (0, 200)


@pytest.mark.runs_in("test-all")
def test_a_terminal_sees_how_far_it_is(cli: Command, queue: Queue) -> None:
    bury(queue, 40)
    told = cli.terminal("redrive", "jobs", "--rate", "20", "--yes")
    assert re.search(r"moved \d+ of 40 dead letters; Ctrl-C stops it", told.out)
    assert "40 dead letters moved" in told.out


@pytest.mark.runs_in("test-all")
def test_what_waits_for_its_next_try_is_delivered_at_once(cli: Command, queue: Queue) -> None:
    queue.write_many([(number, "t") for number in range(4)])
    for each in queue.read_many(3):
        each.nack(delay=600, error="TimeoutError: slow")
    assert cli("retry", "jobs", "--error", "OSError", "--yes").code == 3
    told = cli("retry", "jobs", "--error", "TimeoutError", "--yes")
    assert (told.code, told.out) == (0, "3 messages retried\n")
    assert queue.stats().delayed == 0


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize(
    "words", [("pause", "-t", "t", "--yes"), ("limits", "-t", "t", "rate=3", "--yes"), ("configure", "ttl=60", "--yes")]
)
def test_who_asked_and_why_stand_in_the_journal(cli: Command, queue: Queue, words: tuple[str, ...]) -> None:
    queue.configure(journal=100)
    name, *others = words
    assert cli(name, "jobs", *others, "--by", "ada@host", "--note", "ticket 812").code == 0
    newest = queue.journal(1000, after=0).events[-1]
    assert (newest.by, newest.note) == ("ada@host", "ticket 812")
    assert cli(name, "jobs", *others).code == 0
    assert re.fullmatch(r".+@.+", queue.journal(1000, after=0).events[-1].by)
