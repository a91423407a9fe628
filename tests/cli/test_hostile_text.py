"""Whatever is stored, a terminal shows it and obeys none of it: reasons, errors, shard keys, notes, clients' names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import shardq.cli
from shardq import Limits, Message, Queue
from shardq.cli.declared import exported
from shardq.declared import parsed
from tests.cli.conftest import Command
from tests.cli.test_every_command import APART as ELSEWHERE
from tests.cli.test_text import obeyed
from tests.surface import commands, differences

HOSTILE = "\x1b]0;owned\x07\x9b31m\u202egnp.exe\x7f\nfake  line"
ONE_LINE = " ".join(HOSTILE.split())
"""Texts of errors and reasons are kept as one line."""


@pytest.fixture
def stored(queue: Queue) -> dict[str, str]:
    """The queue has hostile texts wherever a writer or a worker can put one. The ids by state."""
    queue.state.client = ONE_LINE  # what another program may say that it is
    queue.configure(journal=1000, result_ttl=600, max_schedules=10)
    queue.schedules.add("often", {"text": HOSTILE}, shard_key=HOSTILE, every=60)
    named = Message({"text": HOSTILE}, HOSTILE, headers={"name": HOSTILE})
    dead, in_flight, delayed, done = queue.write_many([named] * 4)
    by_id = {each.message_id: each for each in queue.read_many(4)}
    by_id[dead].reject(HOSTILE)
    by_id[in_flight].progress(1, 2, HOSTILE)
    by_id[delayed].nack(delay=600, error=HOSTILE)
    by_id[done].ack(result={"text": HOSTILE})
    waiting = queue.write(HOSTILE.encode(), shard_key=HOSTILE)
    queue.set_limits({HOSTILE: Limits(max_in_flight=3)})
    queue.set_weights({HOSTILE: 2})
    queue.assign([HOSTILE])
    return {"dead": dead, "in_flight": in_flight, "delayed": delayed, "done": done, "waiting": waiting}


def lines(stored: dict[str, str]) -> Iterator[str]:
    """Every command that shows what is stored."""
    yield from (f"message jobs {message_id}" for message_id in stored.values())
    yield from (f"peek jobs --payloads --state {state}" for state in ("waiting", "delayed", "in_flight", "dead"))
    yield from ("failures jobs --letters --payloads", "journal jobs --after 0", "tenants jobs", "limits jobs")
    yield from (
        "assign jobs --list",
        "configure jobs",
        "stats jobs",
        "queues",
        f"message jobs {stored['done']} --result",
    )
    yield from ("tenants jobs --times 1", "schedule jobs", "failures jobs")


ALSO = [["tenants", "jobs", HOSTILE], ["read", "jobs"], ["export"]]
CONFIRMS = (
    "actions", "apply", "cancel", "delete", "pause", "purge", "redrive", "resize", "resume", "retry", "topics bind",
    "topics unbind", "write",
)  # fmt: skip
APART = (
    ELSEWHERE
    | dict.fromkeys(CONFIRMS, "it says what it did, in words of its own")
    | {"workers": "hostile workers are shown by tests/cli/test_screens.py"}
    | dict.fromkeys(
        ("topics list", "topics route"), "no pattern or name of a queue can be hostile; others' entries are ignored"
    )
    | dict.fromkeys(("jobs", "partitions"), "it shows numbers alone")
    | dict.fromkeys(
        ("report cost", "report fair", "report noisy", "report slo", "report used", "what-if"),
        "it shows a folder of jobs: tests/reports/test_pages.py, tests/cli/test_what_if_command.py",
    )
    | dict.fromkeys(("server acl", "server doctor", "serve token", "server lua"), "it shows nothing of messages")
)


def test_each_command_that_shows_what_is_stored_is_run() -> None:
    shown = [line.split()[0] for line in lines(dict.fromkeys(("dead", "done"), "ID"))] + [words[0] for words in ALSO]
    assert differences(shown, commands(), APART) == []


def test_no_command_lets_a_terminal_obey_what_is_stored(cli: Command, stored: dict[str, str]) -> None:
    words = [line.split() for line in lines(stored)]
    for each in words + ALSO:
        told = cli(*each)
        assert told.code == 0, (each, told.err)
        assert obeyed((told.out + told.err).replace("\n", "").replace("\t", "")) == [], each
        assert "\nfake  line" not in told.out, (each, "a text makes no line of its own")


@pytest.mark.runs_in("test-all")
def test_nor_on_a_terminal(cli: Command, stored: dict[str, str]) -> None:
    for line in (
        f"message jobs {stored['dead']}",
        "failures jobs --letters --payloads",
        "peek jobs --payloads",
        "journal jobs",
    ):
        assert (
            obeyed(cli.terminal(*line.split()).out.replace("\r\n", "").replace("\x1b[1m", "").replace("\x1b[0m", ""))
            == []
        )


def test_json_is_exact_all_the_same(cli: Command, stored: dict[str, str]) -> None:
    [letter] = cli("failures", "jobs", "--letters", "--json").objects
    assert (letter["shard_key"], letter["payload"], letter["headers"]) == (
        HOSTILE,
        {"text": HOSTILE},
        {"name": HOSTILE},
    )
    assert letter["reason"] == ONE_LINE
    [status] = cli("message", "jobs", stored["dead"], "--json").objects
    assert status["reason"] == letter["reason"]
    [status] = cli("message", "jobs", stored["in_flight"], "--json").objects
    assert status["progress"]["note"] == ONE_LINE
    events = cli("journal", "jobs", "--after", "0", "--json").objects
    assert ONE_LINE in {each["client"] for each in events}
    assert HOSTILE in {each["shard_key"] for each in events}


def test_an_exported_file_says_exactly_what_is_stored(queue: Queue, stored: dict[str, str]) -> None:
    text, left_out = exported(queue.client, ["jobs"], ["default"])
    assert (obeyed(text.replace("\n", "")), left_out) == ([], [])
    (declared,) = parsed(text.encode()).queues
    assert (declared.weights, declared.assigned) == ({HOSTILE: 2}, (HOSTILE,))


CLI = Path(shardq.cli.__file__).parent
PRINTS = CLI / "output.py"


@pytest.mark.parametrize("path", sorted(CLI.rglob("*.py")), ids=lambda path: str(path.relative_to(CLI)))
def test_only_one_file_prints(path: Path) -> None:
    """So what a command prints is printable, also what a later command prints."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    found = [node.lineno for node in calls if isinstance(node.func, ast.Name) and node.func.id == "print"]
    assert not found or path == PRINTS, f"{path.name}, lines {found}: use shardq.cli.output"


def test_the_rule_is_not_empty() -> None:
    assert "print(" in PRINTS.read_text()
