"""What an operator mistypes at night: one clear line, the exit code that the help names, and nothing changed."""

from __future__ import annotations

import pytest

from shardq import Queue
from tests.cli.conftest import Command
from tests.surface import commands, differences

WRONG = [
    "limits jobs -t t max_in_flight=-1 --yes", "limits jobs -t t rate=abc --yes", "limits jobs -t t colour=3 --yes",
    "limits jobs -t t", "limits jobs rate=3", "limits jobs -t t rate=3", "limits jobs --for 2h", "pause jobs",
    "limits jobs --set-plan gold -t t rate=3 --yes", "limits jobs -t t weight=0 --yes", "limits jobs t --yes",
    "peek jobs --stream 99999", "message jobs 1-1-1 --result", "message jobs 1-1-1 --wait 2s", "purge jobs --task a",
    "purge jobs --in-flight --yes", "purge jobs --dead --in-flight --yes", "purge jobs --dead --id x --yes",
    "purge jobs --dead --id x -t t --yes", "redrive jobs --older-than 2h --newer-than 1h", "cancel jobs",
    "cancel jobs 1-1-1 -t t", "configure jobs colour=3 --yes", "configure jobs streams=none --yes",
    "schedule jobs add x --every 1.5 --task t -t t",
    "tenants jobs t --order dead", "assign jobs", "assign jobs --list --remove", "assign jobs t --list",
    "write jobs x -t t --on-conflict raise",
]  # fmt: skip
NOWHERE = [
    "limits nowhere", "limits nowhere -t t rate=1 --yes", "pause nowhere --yes", "resume nowhere", "tenants nowhere",
    "tenants nowhere t", "tenants nowhere --watch", "peek nowhere", "message nowhere 1-1-1",
    "message nowhere 1-1-1 --result", "purge nowhere --dead --yes", "purge nowhere -t t --yes", "stats nowhere",
    "stats nowhere --field len", "stats nowhere --json", "failures nowhere", "failures nowhere --letters",
    "read nowhere", "journal nowhere", "assign nowhere --list", "configure nowhere max_len=1 --yes",
    "purge nowhere --yes", "delete nowhere --yes", "redrive nowhere --yes", "retry nowhere --yes", "export nowhere",
    "write nowhere x -t t", "cancel nowhere 1-1-1", "cancel nowhere -t t --yes", "configure nowhere streams=8 --yes",
    "assign nowhere t --yes", "assign nowhere t --remove --yes", "actions nowhere", "workers nowhere",
    "schedule nowhere", "schedule nowhere pause often", "schedule nowhere remove often --yes",
    "schedule nowhere run often", "partitions nowhere", "resize nowhere --partitions 2 --yes",
    "jobs nowhere --out nowhere.parquet",
]  # fmt: skip
APART = {
    "server acl": "it asks no server",
    "server doctor": "tests/cli/test_doctor_command.py",
    "topics bind": "a topic may be bound before the queue is declared",
    "edge send": "it sends to a gateway, which tells of it later",
    **dict.fromkeys(
        ("pipeline archive", "pipeline jobs", "pipeline load", "pipeline redrive"), "it needs Spark: tests/spark"
    ),
}


def test_each_command_is_told_a_queue_that_is_not_there() -> None:
    of_queues = {
        name
        for name, takes in commands().items()
        for each in takes
        if (each.metavar, each.option_strings) == ("QUEUE", [])
    }
    assert differences([line.split()[0] for line in NOWHERE], of_queues, APART) == []


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("line", WRONG)
def test_what_is_wrong_is_said_in_a_line(cli: Command, queue: Queue, line: str) -> None:
    queue.write(1, shard_key="t")
    before = queue.stats()
    told = cli(*line.split())
    assert (told.code, told.out, told.err.count("\n")) == (2, "", 1), told
    assert told.err.startswith("shardq: ")
    after = queue.stats()
    assert (after.backlog, after.written, queue.limits(), queue.paused()) == (before.backlog, before.written, {}, {})


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("line", NOWHERE)
def test_a_queue_that_is_not_there_is_said_in_a_line(cli: Command, line: str) -> None:
    told = cli(*line.split())
    assert (told.code, told.out, told.err.count("\n")) == (3, "", 1)
    assert told.err.startswith("shardq: there is no queue 'nowhere': check the name")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("write", "jobs", "1", "-t", "t", "--header=--"), "argument --header: -- is no value"),
        (("serve", "token", "site", "--allow-tenant=\udcff"), "must be valid Unicode"),
        (("stats", "jobs", "\x1b[31mred", "\u202e"), r"one argument too many: '\x1b[31mred'"),
    ],
)
def test_what_no_shell_types_is_said_and_does_nothing_to_a_terminal(
    cli: Command, queue: Queue, words: tuple[str, ...], said: str
) -> None:
    told = cli(*words)
    assert (told.code, told.out) == (2, "")
    assert said in told.err
