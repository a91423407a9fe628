"""What is so of every command: help, a run, a typo, no server, a reader that ended, --json; all within 80 columns."""

from __future__ import annotations

import io
import re
import sys
import unicodedata
from pathlib import Path

import pytest
from msgspec.structs import replace

from shardq import Client
from shardq.cli.commands import report
from shardq.cli.exits import CLOSED_PIPE
from shardq.cli.flags import CHANGE
from shardq.cli.program import main
from tests.cli.conftest import Command
from tests.reports.rows import folder_of, job
from tests.servers import free_ports
from tests.surface import commands, differences
from tests.verbs import SETTINGS, any_id, finished, furnish

LINES = {
    "actions": "jobs",
    "apply": "FILE --yes",
    "assign": "jobs acct-7 --yes",
    "cancel": "jobs WAITING",
    "configure": "jobs max_len=9000 --yes",
    "delete": "jobs --any --yes",
    "export": "jobs",
    "failures": "jobs --letters",
    "jobs": "jobs --out JOBS",
    "journal": "jobs",
    "limits": "jobs -t acct-7 rate=3 --yes",
    "message": "jobs WAITING",
    "partitions": "jobs",
    "pause": "jobs --yes",
    "peek": "jobs",
    "purge": "jobs --yes",
    "queues": "",
    "read": "jobs",
    "redrive": "jobs --yes",
    "report cost": "FOLDER",
    "report fair": "FOLDER",
    "report noisy": "FOLDER",
    "report slo": "FOLDER",
    "report used": "FOLDER",
    "resize": "jobs --partitions 2 --yes",
    "resume": "jobs",
    "retry": "jobs --yes",
    "schedule": "jobs",
    "serve token": "site-7",
    "server acl": "producer jobs",
    "server doctor": "--router other --accept append-only-file --accept libraries --accept no-worker",
    "server lua": "list",
    "stats": "jobs",
    "tenants": "jobs",
    "topics bind": "news jobs",
    "topics list": "",
    "topics route": "topic",
    "topics unbind": "topic jobs",
    "workers": "",
    "write": "jobs hello -t t",
}
"""Words with which a command does something."""

MORE = {
    "assign, listed": "jobs --list",
    "assign, removed": "jobs assigned --remove --yes",
    "cancel, by a filter": "jobs -t a --yes",
    "configure, streams": "jobs streams=8 --yes",
    "limits, weight": "jobs -t acct-7 weight=3 --yes",
    "limits, shown": "jobs",
    "message, its result": "jobs DONE --result",
    "purge, dead letters": "jobs --dead --yes",
    "purge, a tenant": "jobs -t a --yes",
    "serve token, of a person": "jonas --role act",
    "stats, a number": "jobs --field load",
    "tenants, one": "jobs a",
    "tenants, watched": "jobs --watch 0.1s --times 2",
}
"""Other words with which one does something else."""

SERVES = "it runs until it is ended: tests of its own show how"
APART = {
    "what-if": "tests/cli/test_what_if_command.py: it asks no server, but a folder of jobs",
    **dict.fromkeys(
        ("embedded", "serve dashboard", "serve gateway", "serve metrics", "serve scaler", "worker", "edge run"), SERVES
    ),
    **dict.fromkeys(
        ("edge refused", "edge resend", "edge send", "edge status", "edge tail"), "tests/edge has tests of it: no Redis"
    ),
    **dict.fromkeys(
        (
            "pipeline archive", "pipeline jobs", "pipeline load", "pipeline redrive", "pipeline route",
            "pipeline what-if",
        ),
        "it needs Spark: tests/spark",
    ),
}  # fmt: skip
TOML = {"export"}
"""What prints TOML, whatever is asked for."""
REPORTS = {f"report {name}" for name in report.MENU.summaries}
ALONE = {"server acl", "serve token", "serve token, of a person"} | REPORTS
"""What asks no server."""
WIDE = {"export", "server acl", "serve token", "serve token, of a person", "server lua"}
"""What prints lines for a file or another program, which nothing may break."""
NOTHING = {"actions", "failures", "retry", "workers"}
"""What there may be none of: exit code 3."""
EVERY = LINES | MORE
COLUMNS = 80


@pytest.fixture
def words(cli: Command, tmp_path: Path) -> dict[str, list[str]]:
    """The words of each command, for a queue that has all that they need."""
    file = tmp_path / "queues.toml"
    file.write_text("[queues.more]\nstreams = 2\n")
    with Client.from_url(cli.url) as client:
        queue = client.queue("jobs", **SETTINGS)
        queue.declare()
        furnish(queue)
        folder = folder_of(tmp_path / "jobs", [job("a", 0.0), job("b", 0.0, wait=3.0), job("a", 0.0, wait=2.0)])
        places = {
            "FILE": str(file), "FOLDER": str(folder), "JOBS": str(tmp_path / "made"), "WAITING": any_id(queue),
            "DONE": finished(queue),
        }  # fmt: skip
    return {
        name: [*name.partition(",")[0].split(), *(places.get(each, each) for each in line.split())]
        for name, line in EVERY.items()
    }


def width(line: str) -> int:
    """The columns that a line takes."""
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in line)


def wide(text: str) -> list[str]:
    """The lines that do not fit."""
    return [line for line in text.splitlines() if width(line) > COLUMNS]


def test_each_command_has_its_words() -> None:
    assert differences(EVERY, commands(), APART) == []


@pytest.mark.parametrize("name", sorted(commands()))
def test_the_help_of_each_fits(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        main([*name.split(), "--help"])
    told = capsys.readouterr().out
    assert (ended.value.code, wide(told)) == (0, [])
    assert told.startswith(f"usage: shardq {name} ")


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("name", EVERY)
def test_a_run_of_each_fits_and_ends_as_it_says(cli: Command, words: dict[str, list[str]], name: str) -> None:
    told = cli(*words[name])
    assert told.code in ({0, 3} if name in NOTHING else {0}), told.err
    assert "Traceback" not in told.err
    assert name in WIDE or wide(told.out) == []


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("name", sorted(EVERY.keys() - TOML))
def test_json_is_all_that_a_command_prints_if_it_is_asked_for(
    cli: Command, words: dict[str, list[str]], name: str
) -> None:
    told = cli(*words[name], "--json")
    assert [line for line in told.err.splitlines() if line[:8] != "shardq: "] == []
    assert told.code in ({0, 3} if name in NOTHING else {0})
    assert told.objects or name in NOTHING  # no worker is no row, and told to people in words


@pytest.mark.parametrize("name", sorted(commands()))
def test_a_flag_that_is_mistyped_is_told_with_the_one_that_was_meant(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*name.split(), "--jsn"])
    told = capsys.readouterr()
    assert (ended.value.code, told.out, wide(told.err)) == (2, "", [])
    assert told.err.startswith(f"usage: shardq {name} ")
    assert told.err.splitlines()[-1] == f"shardq {name}: there is no --jsn: did you mean --json?"


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("name", sorted(EVERY.keys() - ALONE))
def test_a_server_that_is_away_is_one_line(cli: Command, words: dict[str, list[str]], name: str) -> None:
    url = f"redis://user:secret@127.0.0.1:{free_ports(1)[0]}"
    told = cli(*words[name], "--url", url, "--timeout", "0.1")
    assert (told.code, told.out, told.err.count("\n"), wide(told.err)) == (1, "", 1, [])
    assert re.search(r"^shardq: no Redis at redis://user:\*\*\*@127.*--url", told.err)


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("name", sorted(EVERY.keys() - NOTHING))
def test_a_reader_of_the_output_that_has_ended_is_no_error(
    cli: Command,
    words: dict[str, list[str]],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdout", Closed())
    assert main([*words[name], "--url", cli.url]) == CLOSED_PIPE
    assert [line for line in capsys.readouterr().err.splitlines() if line[:8] != "shardq: "] == []


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("name", sorted(set(LINES) - TOML - {"write", "actions"}))
def test_a_change_that_is_only_looked_at_changes_nothing(cli: Command, words: dict[str, list[str]], name: str) -> None:
    if CHANGE[0] not in {vars(each).get("flag") for each in commands()[name]}:
        return
    with Client.from_url(cli.url) as client:
        before = of(client)
        told = cli(*(each for each in words[name] if each != "--yes"), "--dry-run")
        after = of(client)
    assert told.code in (0, 3, 4), told.err
    assert after == before


def of(client: Client) -> list[object]:
    """What a change could have changed; messages come due meanwhile."""
    queue = client.queue("jobs")
    now = queue.stats()
    counts = [now.written, now.cancelled, now.purged, now.dead, now.dead_deleted, now.wanted]
    weights = queue.weights(), dict(queue.assignment().items())
    schedules = [replace(each, last=None, next=0.0) for each in queue.schedules.list()]  # slots pass meanwhile
    return [counts, queue.settings(), queue.limits(), queue.paused(), weights, schedules, client.queues()]


class Closed(io.StringIO):
    """A stdout whose reader is gone."""

    def write(self, _: str) -> int:
        raise BrokenPipeError
