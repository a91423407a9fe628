"""What is so of every command: --json prints JSON alone, a server that is away and a reader that ended are one line."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from shardq import Client
from shardq.cli.exits import CLOSED_PIPE
from shardq.cli.program import main
from tests.cli.conftest import Command
from tests.servers import free_ports
from tests.surface import commands, differences
from tests.verbs import SETTINGS, any_id, finished, furnish

LINES = {
    "acl": "producer jobs",
    "apply": "FILE --yes",
    "assign": "jobs acct-7 --yes",
    "assigned": "jobs",
    "bind": "news jobs",
    "bindings": "",
    "cancel": "jobs WAITING",
    "configure": "jobs max_len=9000 --yes",
    "dead": "jobs",
    "delete": "jobs --any --yes",
    "delete-dead": "jobs --older-than 0 --yes",
    "doctor": "--router other",
    "export": "jobs",
    "gateway-token": "site-7",
    "journal": "jobs",
    "len": "jobs",
    "limits": "jobs acct-7 rate=3 --yes",
    "lua": "list",
    "message": "jobs WAITING",
    "pause": "jobs --yes",
    "peek": "jobs",
    "plan": "--tenants 100 --noisy 1",
    "purge": "jobs --yes",
    "queues": "",
    "read": "jobs",
    "redrive": "jobs --yes",
    "resize": "jobs 8 --yes",
    "result": "jobs DONE",
    "resume": "jobs",
    "route": "topic",
    "schedule": "jobs",
    "stats": "jobs",
    "tenant": "jobs a",
    "tenants": "jobs",
    "top": "jobs --times 1",
    "unassign": "jobs assigned --yes",
    "unbind": "topic jobs",
    "weights": "jobs acct-7=3 --yes",
    "write": "jobs hello -k t",
}
"""Words with which a command does something."""

SERVES = "it runs until it is ended: tests of its own show how"
APART = {
    **dict.fromkeys(("embedded", "gateway", "worker", "edge run"), SERVES),
    **dict.fromkeys(
        ("edge refused", "edge resend", "edge send", "edge status", "edge tail"), "tests/edge has tests of it: no Redis"
    ),
    **dict.fromkeys(
        (
            "pipeline archive", "pipeline fairness", "pipeline load", "pipeline plan", "pipeline redrive",
            "pipeline route",
        ),
        "it needs Spark: tests/spark",
    ),
}  # fmt: skip
TOML = {"export"}
"""What prints TOML, whatever is asked for."""
ALONE = {"acl", "gateway-token", "plan"}
"""What asks no server."""


@pytest.fixture
def words(cli: Command, tmp_path: Path) -> dict[str, list[str]]:
    """The words of each command, for a queue that has all that they need."""
    file = tmp_path / "queues.toml"
    file.write_text("[queues.more]\nstreams = 2\n")
    with Client.from_url(cli.url) as client:
        queue = client.queue("jobs", **SETTINGS)
        queue.declare()
        furnish(queue)
        places = {"FILE": str(file), "WAITING": any_id(queue), "DONE": finished(queue)}
    return {name: [name, *(places.get(each, each) for each in line.split())] for name, line in LINES.items()}


def test_each_command_has_its_words() -> None:
    assert differences(LINES, commands(), APART) == []


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("name", sorted(LINES.keys() - TOML))
def test_json_is_all_that_a_command_prints_if_it_is_asked_for(
    cli: Command, words: dict[str, list[str]], name: str
) -> None:
    told = cli(*words[name], "--json")
    assert (told.code, [line for line in told.err.splitlines() if line[:8] != "shardq: "]) == (0, [])
    assert told.objects


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("name", sorted(LINES.keys() - ALONE))
def test_a_server_that_is_away_is_one_line(cli: Command, words: dict[str, list[str]], name: str) -> None:
    url = f"redis://user:secret@127.0.0.1:{free_ports(1)[0]}"
    told = cli(*words[name], "--url", url, "--timeout", "0.1")
    assert (told.code, told.out, told.err.count("\n")) == (1, "", 1)
    assert re.search(r"no answer from Redis .*is there a server at redis://user:\*\*\*@127", told.err)


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("name", LINES)
def test_a_reader_of_the_output_that_has_ended_is_no_error(
    cli: Command,
    words: dict[str, list[str]],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdout", Closed())
    assert main([*words[name], "--url", cli.url]) == CLOSED_PIPE
    assert capsys.readouterr().err == ""


class Closed(io.StringIO):
    """A stdout whose reader is gone."""

    def write(self, _: str) -> int:
        raise BrokenPipeError
