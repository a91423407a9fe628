"""`shardq schedule`."""

from __future__ import annotations

import pytest

from shardq import Queue
from tests.cli.conftest import Command

ADD = ("add", "nightly", "--task", "app.report", "--arguments", '{"days": 1}', "-t", "acct-7")


@pytest.mark.runs_in("test-all")
def test_schedules_are_added_listed_changed_and_removed(cli: Command, queue: Queue) -> None:
    assert "configure(max_schedules=1000)" in cli("schedule", "jobs", *ADD, "--every", "60").err
    cli("configure", "jobs", "max_schedules=10", "journal=100", "--yes")
    told = cli("schedule", "jobs")
    assert (told.code, told.out, told.err) == (3, "", "shardq: queue 'jobs' stores no schedules\n")
    told = cli("schedule", "jobs", *ADD, "--cron", "0 3 * * *", "--tz", "Europe/Berlin", "--catch-up", "once")
    assert told.out.startswith("schedule nightly comes next at 20")
    [row, last] = cli("schedule", "jobs").out.splitlines()[1:]
    assert row.split()[:3] == ["nightly", "app.report", "acct-7"]
    assert "0 3 * * * (Europe/Berlin)" in row
    assert last == "1 schedule"
    [shown] = cli("schedule", "jobs", "--json").objects
    assert (shown["cron"], shown["catch_up"], shown["paused"]) == ("0 3 * * *", "once", False)
    assert cli("schedule", "jobs", "pause", "nightly").out == "schedule nightly is paused until it is resumed\n"
    assert "paused" in cli("schedule", "jobs").out
    assert "go with run" in cli("schedule", "jobs", "pause", "nightly", "--note", "why").err
    message_id = cli("schedule", "jobs", "run", "nightly", "--by", "mira", "--note", "ticket 812").out.strip()
    delivery = queue.read()
    assert (delivery.message_id, delivery.payload) == (message_id, ["app.report", {"days": 1}])
    (written,) = [each for each in queue.journal().events if each.kind == "written"]
    assert (written.by, written.note) == ("mira", "ticket 812")
    assert cli("schedule", "jobs", "resume", "nightly").out == "schedule nightly goes on\n"
    assert cli.terminal("schedule", "jobs", "remove", "nightly", typed="n\n").code == 1
    assert cli("schedule", "jobs", "remove", "nightly", "--yes").out == "schedule nightly is removed\n"
    assert cli("schedule", "jobs", "remove", "nightly", "--yes").out == "there was no schedule nightly\n"


@pytest.mark.runs_in("test-all")
def test_what_is_wrong_is_told_in_one_line(cli: Command, queue: Queue) -> None:
    queue.configure(max_schedules=10)
    for words, said, code in (
        (("list", "nightly"), "it takes no name", 2),
        (("pause",), "name the schedule to pause", 2),
        (("add", "nightly"), "name the task and its tenant", 2),
        ((*ADD, "--cron", "0 3 * *"), "Wrong number of fields", 2),
        ((*ADD, "--cron", "0 3 * * *", "--tz", "Mars"), "no time zone", 2),
        ((*ADD, "--cron", "0 3 * * *", "--every", "5"), "and not both", 2),
        ((*ADD[:4], "--arguments", "[1]", "-t", "t", "--every", "60"), "must be a JSON object", 2),
        (("pause", "nightly"), "no stored schedule 'nightly'", 3),
    ):
        told = cli("schedule", "jobs", *words)
        assert said in told.err
        assert told.err.count("\n") == 1
        assert told.code == code
