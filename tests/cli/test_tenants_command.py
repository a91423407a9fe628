"""`shardq tenants`: all of them, one, and again and again."""

from __future__ import annotations

import re

import pytest

from shardq import Limits, Queue
from tests.cli.conftest import Command


def fill(queue: Queue) -> None:
    for name, count in (("flood", 40), ("acct-7", 3), (b"\xff\x1b", 2)):
        queue.write_many([(number, name) for number in range(count)])
    queue.set_limits({"flood": Limits(max_in_flight=2)})
    queue.pause("acct-7")
    assert len(queue.read_many(100)) == 4


@pytest.mark.runs_in("test-all")
def test_a_table_of_tenants(cli: Command, queue: Queue) -> None:
    told = cli("tenants", "jobs")
    assert (told.code, told.out, told.err) == (3, "", "shardq: nobody has anything waiting in queue 'jobs'\n")
    assert cli("tenants", "jobs", "nobody").code == 3
    fill(queue)
    lines = [line.split() for line in cli("tenants", "jobs").out.splitlines()]
    assert lines[1][:6] == ["flood", "38", "0", "38", "2", "0"]
    assert lines[1][-2:] == ["cap", "2"]
    assert (lines[2][0], lines[2][1], lines[2][-1]) == ("acct-7", "3", "paused")
    assert len(lines) == 3
    lines = [line.split() for line in cli("tenants", "jobs", "--order", "in_flight", "-n", "1").out.splitlines()]
    assert len(lines) == 2
    [listed] = cli("tenants", "jobs", "--json", "--start", "1").objects
    [row] = listed["tenants"]
    assert (row["shard_key"], row["limited"], row["paused_until"]) == ("acct-7", 3, "resumed")
    assert cli("tenants", "jobs", "--order", "results").code == 3
    queue.write(1, shard_key="careful", dedup_key="k")
    assert cli("tenants", "jobs", "--order", "dedup").out.splitlines()[1].split()[:2] == ["careful", "1"]
    assert cli("tenants", "jobs", "--order", "size").code == 2
    assert cli("tenants", "nowhere").code == 3


def test_one_tenant(cli: Command, queue: Queue) -> None:
    fill(queue)
    told = dict(re.findall(r"^(\w[\w ]*?)  +(.+)$", cli("tenants", "jobs", "flood").out, re.MULTILINE))
    assert told["backlog"] == "38"
    assert told["held back"] == "0 until its turn comes, 38 by a limit or pause"
    assert told["limits"] == "cap 2"
    [shown] = cli("tenants", "jobs", "acct-7", "--json").objects
    assert (shown["queue"], shown["backlog"], shown["paused_until"]) == ("jobs", 3, "resumed")
    assert all(each.keys() >= {"shared", "backlog"} for each in shown["neighbours"])


def test_top_looks_again_and_again(cli: Command, queue: Queue) -> None:
    fill(queue)
    told = cli("tenants", "jobs", "--watch", "0.1", "--times", "3")
    assert told.code == 0
    assert len(re.findall(r"^jobs: backlog 41, runnable 0, in flight 4,", told.out, re.MULTILINE)) == 3
    assert len(re.findall(r"^flood ", told.out, re.MULTILINE)) == 3
    assert len(cli("tenants", "jobs", "--json", "--watch", "0.1", "--times", "2").objects) == 2


@pytest.mark.runs_in("test-all")
def test_a_table_fits_a_terminal_of_80_columns(cli: Command, queue: Queue) -> None:
    """Each tenant has its line, if its name is short, and the table its header."""
    fill(queue)
    queue.write("x", shard_key="a-long-name-" * 5)
    queue.set_weights({"acct-7": 3})
    cli.environment["TERM"] = "xterm"
    told = cli.terminal("tenants", "jobs")
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).split() for line in told.out.splitlines()]
    assert lines[0][:4] == ["tenant", "backlog", "held", "limited"]
    assert ["flood", "38", "0", "38"] in [line[:4] for line in lines]
    assert max(map(len, told.out.splitlines()[1:])) <= 80


@pytest.mark.runs_in("test-all")
def test_top_shows_what_fits_on_the_terminal(cli: Command, queue: Queue) -> None:
    queue.write_many([("x", f"t{number}") for number in range(60)])
    cli.environment |= {"TERM": "xterm", "LINES": "12"}
    told = cli.terminal("tenants", "jobs", "-n", "50", "--times", "1")
    assert told.code == 0
    assert len(re.findall(r"^\S*t\d+ ", told.out, re.MULTILINE)) == 7
    assert len(told.out.splitlines()) < 12


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("bad", ["0", "-5", "1e300", "5x", "0.01", "2d"])
def test_a_bad_period_is_refused(cli: Command, queue: Queue, bad: str) -> None:
    for words in (("tenants", "jobs", "--watch", bad), ("stats", "jobs", "--watch", bad)):
        told = cli(*words)
        assert (told.code, told.out) == (2, "")
        assert "must be a time" in told.err
