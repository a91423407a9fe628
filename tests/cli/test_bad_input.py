"""What an operator mistypes at night: one clear line, the exit code that the help names, and nothing changed."""

from __future__ import annotations

import pytest

from shardq import Queue
from tests.cli.conftest import Command
from tests.surface import commands, differences

WRONG = [
    "limits jobs t max_in_flight=-1 --yes", "limits jobs t rate=abc --yes", "limits jobs t colour=3 --yes",
    "limits jobs t", "limits jobs t rate=3", "pause jobs t --for -1 --yes", "pause jobs",
    "peek jobs --stream 99999", "result jobs 1-1-1", "delete-dead jobs",
    "delete-dead jobs --older-than -5 --yes", "delete-dead jobs --id x --yes",
    "write jobs x -k t --on-conflict raise",
]  # fmt: skip
NOWHERE = [
    "limits nowhere", "limits nowhere t rate=1 --yes", "pause nowhere --yes", "resume nowhere", "tenants nowhere",
    "tenant nowhere t", "top nowhere", "peek nowhere", "message nowhere 1-1-1", "result nowhere 1-1-1",
    "delete-dead nowhere --older-than 0 --yes", "len nowhere", "stats nowhere", "stats nowhere --json", "dead nowhere",
    "read nowhere", "journal nowhere", "weights nowhere", "assigned nowhere", "configure nowhere max_len=1 --yes",
    "purge nowhere --yes", "delete nowhere --yes", "redrive nowhere --yes", "export nowhere", "write nowhere x -k t",
    "cancel nowhere 1-1-1", "resize nowhere 8 --yes", "assign nowhere t --yes", "unassign nowhere t --yes",
    "schedule nowhere", "schedule nowhere pause often", "schedule nowhere remove often --yes",
    "schedule nowhere run often",
]  # fmt: skip
APART = {
    "acl": "it asks no server",
    "bind": "a topic may be bound before the queue is declared",
    "edge send": "it sends to a gateway, which tells of it later",
    **dict.fromkeys(("pipeline archive", "pipeline load", "pipeline redrive"), "it needs Spark: tests/spark"),
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
        (("write", "jobs", "1", "-k", "t", "--header=--"), "argument --header: -- is no value"),
        (("gateway-token", "site", "--shard-key=\udcff"), "must be valid Unicode"),
        (("len", "jobs", "\x1b[31mred", "\u202e"), r"unrecognized arguments: \x1b[31mred \u202e"),
    ],
)
def test_what_no_shell_types_is_said_and_does_nothing_to_a_terminal(
    cli: Command, queue: Queue, words: tuple[str, ...], said: str
) -> None:
    told = cli(*words)
    assert (told.code, told.out) == (2, "")
    assert said in told.err
