"""The commands of operators: numbers, settings, dead letters."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict

from shardq import Queue, QueueStats
from shardq.cli.commands.stats import PRESENT_FIELDS, lines_of
from shardq.model.stats import COUNTS
from shardq.outlook.queues import QueueLook
from tests.cli.conftest import Command
from tests.surface import differences
from tests.waiting import eventually


def bury(queue: Queue, count: int, shard_key: str = "t") -> None:
    """Let messages die."""
    queue.write_many([({"n": n}, shard_key) for n in range(count)])
    while deliveries := queue.read_many(100):
        for delivery in deliveries:
            delivery.reject("bad\x1b[31m input")


def facts(text: str) -> dict[str, str]:
    """What `stats` and the like print, as names and values."""
    return dict(re.split(r"  +", line, maxsplit=1) for line in text.splitlines() if "  " in line)


def test_a_mistyped_name_is_no_empty_queue(cli: Command, queue: Queue) -> None:
    """What scales by the length would take all workers away, and nobody would see why."""
    for words in (
        ("stats", "typo", "--field", "len"),
        ("stats", "typo", "--field", "len", "--json"),
        ("stats", "typo"),
        ("failures", "typo", "--letters"),
    ):
        told = cli(*words)
        assert (told.code, told.out, "there is no queue 'typo'" in told.err) == (3, "", True), words
    assert cli("stats", queue.name, "--field", "len").out == "0\n"


def test_stats_tell_what_the_queue_holds(cli: Command, queue: Queue) -> None:
    queue.write_many([(b"x", f"t{number}") for number in range(5)])
    queue.write(b"later", shard_key="t", delay=600)
    queue.read().ack()
    queue.read()
    told = cli("stats", "jobs")
    shown = facts(told.out)
    assert told.code == 0
    assert [shown[name] for name in ("backlog", "in flight", "delayed", "dead", "written", "acked")] == [
        "3", "1", "1 (the next in 10 min)", "0", "6", "1",
    ]  # fmt: skip
    assert shown["tenants waiting"] == "0 besides those in streams"
    assert shown["streams"].startswith("8; ")
    assert re.search(r"^[·▁▂▃▄▅▆▇█]{8}$", told.out, re.MULTILINE)
    numbers = cli("stats", "jobs", "--json").objects[0]
    assert (numbers["backlog"], numbers["in_flight"], len(numbers["streams"])) == (3, 1, 8)


def test_stats_show_each_number() -> None:
    counts: Any = {name: 101 + at for at, name in enumerate(COUNTS)}
    now = QueueStats("jobs", 0.0, 901, 902, 903, 904, 95.0, (906,), id="7-x", **counts)
    shown = "\n".join(lines_of(now, QueueLook("jobs", now), None))
    told = {name for name, value in asdict(now).items() if re.search(rf"\b{spelled(value)}\b", shown)}
    apart = {
        "time": "it is now", "paused_until": "as a time", "paused_since": "as a time", "next_due": "as in how long",
        "streams": "a picture shows them", "oldest_age_is_sampled": "the age has it: `or more`",
    }  # fmt: skip
    assert differences(told, QueueStats.__struct_fields__, apart) == []
    assert {*PRESENT_FIELDS} <= {*COUNTS}


def spelled(value: object) -> str:
    """As `shardq stats` has it."""
    return f"{value:.0f} s" if isinstance(value, float) else str(value)


@pytest.mark.runs_in("test-all")
def test_stats_can_be_watched_until_interrupted(cli: Command, queue: Queue) -> None:
    pipe = subprocess.PIPE
    with cli.start("stats", "jobs", "--watch", "0.05", "--json", stdout=pipe, stderr=pipe) as process:
        assert process.stdout
        assert b'"written":0' in process.stdout.readline()
        queue.write(b"x", shard_key="t")
        eventually(lambda: b'"written":1' in process.stdout.readline(), 30)  # type: ignore[union-attr]
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=150)[1] == b""
    assert process.returncode == 130


@pytest.mark.runs_in("test-all")
def test_a_resize_and_a_purge_ask_or_need_yes(cli: Command, queue: Queue) -> None:
    queue.write_many([(b"x", "t")] * 5)
    for words in (("configure", "jobs", "streams=4"), ("purge", "jobs"), ("configure", "jobs", "ttl=60")):
        told = cli(*words)
        assert (told.code, told.out) == (2, "")
        assert "--yes" in told.err
        declined = cli.terminal(*words, typed="n\n")
        assert declined.code == 1
        assert "nothing was changed" in declined.out
    assert (queue.len(), len(queue.stats().streams)) == (5, 8)
    agreed = cli.terminal("purge", "jobs", typed="y\n")
    assert agreed.code == 0
    assert "5 messages removed" in agreed.out
    assert cli("configure", "jobs", "streams=4", "--yes", "--json").objects == [
        {"queue": "jobs", **asdict(queue.settings())}
    ]
    assert queue.stats().wanted == 4


def test_settings_are_shown_and_changed(cli: Command, queue: Queue) -> None:
    assert facts(cli("configure", "jobs").out)["max_deliveries"] == "3"
    changed = cli("configure", "jobs", "visibility_timeout=1.5", "max_deliveries=7", "ttl=3600", "--yes")
    assert (changed.code, facts(changed.out)["visibility_timeout"]) == (0, "1.5")
    assert cli("configure", "jobs", "ttl=none", "--yes", "--json").objects[0]["ttl"] is None
    assert queue.settings().max_deliveries == 7


@pytest.mark.parametrize(
    "change", ["streams=x", "streams=none", "nonsense=1", "max_len=x", "ttl=x", "max_deliveries=1", "ttl"]
)
def test_a_bad_setting_changes_nothing(cli: Command, queue: Queue, change: str) -> None:
    before = queue.settings()
    told = cli("configure", "jobs", change, "--yes")
    assert told.code == 2
    assert "Traceback" not in told.err
    assert queue.settings() == before


@pytest.mark.runs_in("test-all")
def test_weights_are_shown_and_changed(cli: Command, queue: Queue) -> None:
    assert cli("limits", "jobs").code == 3
    told = cli("limits", "jobs", "-t", "gold", "weight=3", "--yes")
    assert (told.code, told.out.splitlines()[1].split()) == (0, ["gold", "3"])
    [shown] = cli("limits", "jobs", "--json").objects
    assert [(each["shard_key"], each["weight"]) for each in shown["limits"]] == [("gold", 3)]
    for bad in ("weight=0", "weight=101", "weight=x", "weight"):
        told = cli("limits", "jobs", "-t", "gold", bad, "--yes")
        assert (told.code, "Traceback" in told.err) == (2, False)
    assert cli.terminal("limits", "jobs", "-t", "gold", "weight=9", typed="n\n").code == 1
    assert queue.weights() == {"gold": 3}


def test_weights_of_shard_keys_that_are_no_text_are_shown_as_elsewhere(cli: Command, queue: Queue) -> None:
    """A text key that looks like Python's spelling of one stays another one."""
    queue.set_weights({b"\xff\x1b": 5, r"b'\xff\x1b'": 2})
    lines = [line.split() for line in cli("limits", "jobs").out.splitlines()]
    assert lines[1:3] == [[r"b'\xff\x1b'", "2"], [r"\xff\x1b", "5"]]
    [told] = cli("limits", "jobs", "--json").objects
    found = [(each.get("shard_key"), each.get("shard_key_base64"), each["weight"]) for each in told["limits"]]
    assert found == [(r"b'\xff\x1b'", None, 2), (None, "/xs=", 5)]


def test_dead_letters_are_listed_without_being_obeyed(cli: Command, queue: Queue) -> None:
    none = cli("failures", "jobs", "--letters")
    assert (none.code, none.err) == (3, "shardq: queue 'jobs' has no dead letters\n")
    bury(queue, 3)
    told = cli("failures", "jobs", "--letters", "--payloads", "--limit", "2")
    assert told.out.count("bad\\x1b[31m input") == 2
    assert '{"n":' in told.out
    assert "1 more" in told.err
    assert {each["reason"] for each in cli("failures", "jobs", "--letters", "--json").objects} == {"bad\x1b[31m input"}


@pytest.mark.runs_in("test-all")
def test_a_terminal_gets_a_table_of_the_same(cli: Command, queue: Queue) -> None:
    bury(queue, 1)
    cli.environment = {"COLUMNS": "200", "NO_COLOR": "1"}
    shown = cli.terminal("failures", "jobs", "--letters")
    assert shown.code == 0
    assert "bad\\x1b[31m input" in re.sub(r"\x1b\[[0-9;]*m", "", shown.out)


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("columns", ["40", "90", "200"])
def test_an_id_is_never_broken_however_narrow_the_terminal(cli: Command, queue: Queue, columns: str) -> None:
    bury(queue, 2)
    cli.environment = {"COLUMNS": columns, "NO_COLOR": "1", "TERM": "xterm"}
    shown = cli.terminal("failures", "jobs", "--letters", "--payloads")
    assert [letter.message_id for letter in queue.dead() if letter.message_id not in shown.out] == []
    assert max(map(len, shown.out.splitlines())) <= int(columns)


@pytest.mark.runs_in("test-all")
def test_a_terminal_without_rich_gets_plain_text(cli: Command, queue: Queue, tmp_path: Path) -> None:
    bury(queue, 1)
    (tmp_path / "rich.py").write_text("raise ImportError('not installed')")
    cli.environment = {"PYTHONPATH": str(tmp_path)}
    shown = cli.terminal("failures", "jobs", "--letters")
    assert shown.code == 0
    assert re.match(r"MESSAGE +TENANT +TRIES", shown.out)
    assert "bad\\x1b[31m input" in shown.out


@pytest.mark.runs_in("test-all")
def test_redrive_moves_what_was_meant(cli: Command, queue: Queue) -> None:
    bury(queue, 5)
    bury(queue, 2, "other")
    assert cli("redrive", "jobs", "--dry-run", "--json").objects == [{"dry_run": True, "queue": "jobs", "found": 7}]
    assert cli("redrive", "jobs").code == 2
    assert queue.stats().dead == 7
    assert cli("redrive", "jobs", "--tenant", "other", "--yes").out == "2 dead letters moved\n"
    assert cli("redrive", "jobs", "--limit", "4", "--yes").out == "4 dead letters moved\n"
    assert (queue.stats().dead, queue.stats().backlog) == (1, 6)
    nobody = cli("redrive", "jobs", "--tenant", "nobody", "--yes")
    assert (nobody.code, nobody.err) == (3, "shardq: queue 'jobs' has no such dead letters\n")


def test_redrive_goes_through_all_pages(cli: Command, queue: Queue) -> None:
    bury(queue, 1_203)
    [told] = cli("redrive", "jobs", "--yes", "--json").objects
    assert (told["queue"], told["state"], told["done"]) == ("jobs", "done", 1_203)


def test_redrive_says_how_many_it_moved_and_how_many_it_left_for_want_of_room(cli: Command, queue: Queue) -> None:
    bury(queue, 12)
    queue.configure(max_len=10)
    told = cli("redrive", "jobs", "--yes")
    assert (told.code, told.out) == (1, "8 dead letters moved\n")
    assert "(max_len)" in told.err
    assert "4 dead letters of a piece were left" in told.err


@pytest.mark.runs_in("test-all")
def test_cancel_removes_what_waits_and_tells_of_what_is_in_flight(cli: Command, queue: Queue) -> None:
    waiting = queue.write(b"x", shard_key="t")
    assert cli("cancel", "jobs", waiting).out == "removed\n"
    held = queue.write(b"x", shard_key="t")
    queue.read()
    assert cli("cancel", "jobs", held, "--json").objects == [{"message_id": held, "was": "in flight"}]
    assert cli("cancel", "jobs", waiting).code == 3
    assert cli("cancel", "jobs", "nonsense").code == 3
