"""`shardq limits`, `pause` and `resume`."""

from __future__ import annotations

import math
from datetime import datetime

import pytest

from shardq import Limits, Plan, Queue
from tests.cli.conftest import Command


@pytest.mark.runs_in("test-all")
def test_limits_are_shown_and_changed(cli: Command, queue: Queue) -> None:
    told = cli("limits", "jobs")
    assert (told.code, told.out) == (3, "")
    assert "no tenant of queue 'jobs' has limits" in told.err
    told = cli("limits", "jobs", "-t", "acct-7", "max_in_flight=3", "rate=2.5", "--yes")
    assert told.out.split("\n")[1].split() == ["acct-7", "3", "2.5"]
    assert queue.limits() == {"acct-7": Limits(max_in_flight=3, rate=2.5)}
    cli("limits", "jobs", "-t", "acct-7", "burst=20", "max_in_flight=0", "--yes")
    assert queue.limits() == {"acct-7": Limits(max_in_flight=0, burst=20)}, "what is not named is the queue's again"
    [shown] = cli("limits", "jobs", "--json").objects
    row = {"shard_key": "acct-7", "plan": None, "max_in_flight": 0, "rate": None, "burst": 20, "weight": 1}
    assert (shown["queue"], shown["paused_until"], shown["plans"]) == ("jobs", None, {})
    assert [{**each, **row} for each in shown["limits"]] == shown["limits"]
    assert cli.terminal("limits", "jobs", "-t", "acct-7", "--none", typed="n\n").code == 1
    ended = cli("limits", "jobs", "-t", "acct-7", "--none", "--yes")
    assert (ended.code, ended.out) == (0, "")
    assert "no tenant of queue 'jobs' has limits" in ended.err, "that it has none any more is said, and no error"
    assert queue.limits() == {}


@pytest.mark.runs_in("test-all")
def test_bad_limits_are_told_in_one_line(cli: Command, queue: Queue) -> None:
    for words, said in (
        (["speed=3"], "there is no limit 'speed'"),
        (["rate=x"], "rate must be a number"),
        (["burst=1.5"], "burst must be a number"),
        (["rate=-1"], "rate must be a number per second"),
        ([], "name the limits"),
        (["rate=1", "--none"], "name the limits"),
    ):
        told = cli("limits", "jobs", "-t", "acct-7", *words, "--yes")
        assert told.code == 2
        assert said in told.err
        assert told.err.count("\n") == 1
    assert queue.limits() == {}


@pytest.mark.runs_in("test-all")
def test_plans_are_shown_and_changed(cli: Command, queue: Queue) -> None:
    told = cli("limits", "jobs", "--set-plan", "gold", "max_in_flight=20", "rate=50", "weight=3", "--yes")
    assert told.code == 0
    assert queue.plans() == {"gold": Plan(max_in_flight=20, rate=50, weight=3)}
    assert told.out.splitlines()[-1].split() == ["gold", "20", "50", "3", "0"]
    told = cli("limits", "jobs", "-t", "acct-7", "--plan", "gold", "--yes")
    assert told.out.splitlines()[1].split() == ["acct-7", "gold", "20", "50"]
    [shown] = cli("limits", "jobs", "--json").objects
    assert shown["limits"][0]["plan"] == "gold"
    assert shown["plans"]["gold"]["tenants"] == 1
    assert "plan gold" in cli("tenants", "jobs", "--order", "dedup").out + cli("tenants", "jobs", "acct-7").out
    told = cli("limits", "jobs", "--delete-plan", "gold", "--yes")
    assert (told.code, "1 tenant" in told.err) == (2, True)
    cli("limits", "jobs", "-t", "acct-7", "--none", "--yes")
    assert cli("limits", "jobs", "--delete-plan", "gold", "--yes").code == 0
    assert queue.plans() == {}
    for words, said in (
        (["--plan", "gold"], "name the tenant"),
        (["-t", "acct-7", "rate=1", "--plan", "gold"], "name the limits"),
        (["-t", "acct-7", "--plan", "silver"], "no plan 'silver'"),
        (["--set-plan", "gold", "--none"], "stand alone"),
        (["-t", "acct-7", "--delete-plan", "gold"], "stand alone"),
        (["--set-plan", "a b"], "the name of a plan"),
        (["--set-plan", "gold", "weight=0"], "weight must be"),
    ):
        told = cli("limits", "jobs", *words, "--yes")
        assert told.code == 2
        assert said in told.err
        assert told.err.count("\n") == 1


@pytest.mark.runs_in("test-all")
def test_a_tenant_and_a_queue_are_paused_and_go_on(cli: Command, queue: Queue) -> None:
    assert cli("pause", "jobs", "-t", "acct-7", "--yes").out == "acct-7 in queue 'jobs' is paused until it is resumed\n"
    refused = cli("pause", "jobs", "--for", "0", "--yes")
    assert (refused.code, "must be a time above 0" in refused.err) == (2, True), "0 is no pause without an end"
    assert cli("pause", "jobs", "--for", "10m", "--yes").out == "queue 'jobs' is paused for 10 min\n"
    paused = queue.paused()
    assert paused.keys() == {None, "acct-7"}
    assert paused["acct-7"] == math.inf
    assert queue.stats().time + 590 < paused[None] <= queue.stats().time + 600
    lines = cli("limits", "jobs").out.splitlines()
    assert lines[1].startswith("(the whole queue)")
    assert lines[1].endswith(f"  {datetime.fromtimestamp(paused[None]).astimezone():%Y-%m-%d %H:%M:%S}")
    assert lines[2].split() == ["acct-7", "resumed"]
    assert cli("resume", "jobs").out == "queue 'jobs' goes on\n"
    [told] = cli("resume", "jobs", "-t", "acct-7", "--json").objects
    assert told == {"queue": "jobs", "shard_key": "acct-7", "paused": False}
    assert queue.paused() == {}
    assert cli("pause", "nowhere", "--yes").code == 3


def test_stats_show_what_could_run(cli: Command, queue: Queue) -> None:
    queue.write_many([(number, "acct-7") for number in range(5)])
    queue.pause("acct-7")
    assert queue.read_many(9) == []
    lines = {line.split()[0]: line.split()[1] for line in cli("stats", "jobs").out.splitlines() if line}
    assert (lines["backlog"], lines["runnable"]) == ("5", "0")
