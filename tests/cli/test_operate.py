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
from shardq.cli.commands.stats import OF_NOW, _show
from shardq.cli.shell import Shell
from shardq.model.stats import COUNTS
from tests.cli.conftest import Command
from tests.servers import Server, ServerKind
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
    for words in (("len", "typo"), ("len", "typo", "--json"), ("stats", "typo"), ("dead", "typo")):
        told = cli(*words)
        assert (told.code, told.out, "there is no queue 'typo'" in told.err) == (3, "", True), words
    assert cli("len", queue.name).out == "0\n"


def test_stats_tell_what_the_queue_holds(cli: Command, queue: Queue) -> None:
    queue.write_many([(b"x", f"t{number}") for number in range(5)])
    queue.write(b"later", shard_key="t", delay=600)
    queue.read().ack()
    queue.read()
    told = cli("stats", "jobs")
    shown = facts(told.out)
    assert told.code == 0
    assert [shown[name] for name in ("backlog", "in flight", "delayed", "dead", "written", "acked")] == [
        "3", "1", "1", "0", "6", "1",
    ]  # fmt: skip
    assert shown["streams"].startswith("8; ")
    assert re.search(r"^[·▁▂▃▄▅▆▇█]{8}$", told.out, re.MULTILINE)
    numbers = cli("stats", "jobs", "--json").objects[0]
    assert (numbers["backlog"], numbers["in_flight"], len(numbers["streams"])) == (3, 1, 8)


def test_stats_show_each_number(capsys: pytest.CaptureFixture[str]) -> None:
    counts: Any = {name: 101 + at for at, name in enumerate(COUNTS)}
    now = QueueStats("jobs", 0.0, 901, 902, 903, 904, 95.0, (906,), id="7-x", **counts)
    _show(Shell("", 1.0, json=False), now, None)
    shown = capsys.readouterr().out
    told = {name for name, value in asdict(now).items() if re.search(rf"\b{spelled(value)}\b", shown)}
    apart = {
        "time": "it is now", "streams": "a picture shows them", "oldest_age_is_sampled": "the age has it: `or more`",
    }  # fmt: skip
    assert differences(told, QueueStats.__struct_fields__, apart) == []
    assert {*OF_NOW} <= {*COUNTS}


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
    for words in (("resize", "jobs", "4"), ("purge", "jobs"), ("configure", "jobs", "ttl=60")):
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
    assert cli("resize", "jobs", "4", "--yes", "--json").objects == [
        {"queue": "jobs", "streams_read": 4, "streams_written": 4}
    ]


def test_settings_are_shown_and_changed(cli: Command, queue: Queue) -> None:
    assert facts(cli("configure", "jobs").out)["max_deliveries"] == "3"
    changed = cli("configure", "jobs", "visibility_timeout=1.5", "max_deliveries=7", "ttl=3600", "--yes")
    assert (changed.code, facts(changed.out)["visibility_timeout"]) == (0, "1.5")
    assert cli("configure", "jobs", "ttl=none", "--yes", "--json").objects[0]["ttl"] is None
    assert queue.settings().max_deliveries == 7


@pytest.mark.parametrize("change", ["streams=3", "nonsense=1", "max_len=x", "ttl=x", "max_deliveries=1", "ttl"])
def test_a_bad_setting_changes_nothing(cli: Command, queue: Queue, change: str) -> None:
    before = queue.settings()
    told = cli("configure", "jobs", change, "--yes")
    assert told.code == 2
    assert "Traceback" not in told.err
    assert queue.settings() == before


@pytest.mark.runs_in("test-all")
def test_weights_are_shown_and_changed(cli: Command, queue: Queue) -> None:
    assert "every shard key has weight 1" in cli("weights", "jobs").out
    told = cli("weights", "jobs", "gold=3", "tin=1", "--yes")
    assert (told.code, facts(told.out)) == (0, {"gold": "3"})
    [shown] = cli("weights", "jobs", "--json").objects
    assert shown == {"queue": "jobs", "weights": [{"shard_key": "gold", "weight": 3}]}
    for bad in ("gold=0", "gold=101", "gold=x", "gold"):
        told = cli("weights", "jobs", bad, "--yes")
        assert (told.code, "Traceback" in told.err) == (2, False)
    assert cli.terminal("weights", "jobs", "gold=9", typed="n\n").code == 1
    assert queue.weights() == {"gold": 3}


def test_weights_of_shard_keys_that_are_no_text_are_shown_as_elsewhere(cli: Command, queue: Queue) -> None:
    """A text key that looks like Python's spelling of one stays another one."""
    queue.set_weights({b"\xff\x1b": 5, r"b'\xff\x1b'": 2})
    lines = [line.split() for line in cli("weights", "jobs").out.splitlines()]
    assert lines == [[r"b'\xff\x1b'", "2"], [r"\xff\x1b", "5"]]
    [told] = cli("weights", "jobs", "--json").objects
    assert told["weights"] == [{"shard_key": r"b'\xff\x1b'", "weight": 2}, {"shard_key_base64": "/xs=", "weight": 5}]


def test_dead_letters_are_listed_without_being_obeyed(cli: Command, queue: Queue) -> None:
    none = cli("dead", "jobs")
    assert (none.code, none.err) == (3, "shardq: queue 'jobs' has no dead letters\n")
    bury(queue, 3)
    told = cli("dead", "jobs", "--payload", "--count", "2")
    assert told.out.count("bad\\x1b[31m input") == 2
    assert '{"n":' in told.out
    assert "1 more" in told.err
    assert {each["reason"] for each in cli("dead", "jobs", "--json").objects} == {"bad\x1b[31m input"}


@pytest.mark.runs_in("test-all")
def test_a_terminal_gets_a_table_of_the_same(cli: Command, queue: Queue) -> None:
    bury(queue, 1)
    cli.environment = {"COLUMNS": "200", "NO_COLOR": "1"}
    shown = cli.terminal("dead", "jobs")
    assert shown.code == 0
    assert "bad\\x1b[31m input" in re.sub(r"\x1b\[[0-9;]*m", "", shown.out)


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("columns", ["40", "90", "200"])
def test_an_id_is_never_broken_however_narrow_the_terminal(cli: Command, queue: Queue, columns: str) -> None:
    bury(queue, 2)
    cli.environment = {"COLUMNS": columns, "NO_COLOR": "1", "TERM": "xterm"}
    shown = cli.terminal("dead", "jobs", "--payload")
    assert [letter.message_id for letter in queue.dead() if letter.message_id not in shown.out] == []
    assert shown.out.count("message id") == (2 if columns == "40" else 1)


@pytest.mark.runs_in("test-all")
def test_a_terminal_without_rich_gets_plain_text(cli: Command, queue: Queue, tmp_path: Path) -> None:
    bury(queue, 1)
    (tmp_path / "rich.py").write_text("raise ImportError('not installed')")
    cli.environment = {"PYTHONPATH": str(tmp_path)}
    shown = cli.terminal("dead", "jobs")
    assert shown.code == 0
    assert re.match(r"message id +shard key +deliveries", shown.out)
    assert "bad\\x1b[31m input" in shown.out


@pytest.mark.runs_in("test-all")
def test_redrive_moves_what_was_meant(cli: Command, queue: Queue) -> None:
    bury(queue, 5)
    bury(queue, 2, "other")
    assert cli("redrive", "jobs", "--dry-run", "--json").objects == [{"queue": "jobs", "would_redrive": 7}]
    assert cli("redrive", "jobs").code == 2
    assert queue.stats().dead == 7
    assert cli("redrive", "jobs", "--shard-key", "other", "--yes").out == "2 dead letters moved\n"
    assert cli("redrive", "jobs", "--count", "4", "--yes").out == "4 dead letters moved\n"
    assert (queue.stats().dead, queue.stats().backlog) == (1, 6)
    nobody = cli("redrive", "jobs", "--shard-key", "nobody", "--yes")
    assert (nobody.code, nobody.err) == (3, "shardq: queue 'jobs' has no dead letters of shard key 'nobody'\n")


def test_redrive_goes_through_all_pages(cli: Command, queue: Queue) -> None:
    bury(queue, 1_203)
    assert cli("redrive", "jobs", "--yes", "--json").objects == [{"queue": "jobs", "redriven": 1_203}]


def test_redrive_says_how_many_it_moved_and_how_many_it_left_for_want_of_room(cli: Command, queue: Queue) -> None:
    bury(queue, 12)
    queue.configure(max_len=10)
    told = cli("redrive", "jobs", "--yes")
    assert (told.code, told.out) == (1, "8 dead letters moved\n")
    assert "max_len = 10 messages" in told.err
    assert "4 dead letters were left" in told.err


@pytest.mark.runs_in("test-all")
def test_cancel_removes_what_waits_and_tells_of_what_is_in_flight(cli: Command, queue: Queue) -> None:
    waiting = queue.write(b"x", shard_key="t")
    assert cli("cancel", "jobs", waiting).out == "removed\n"
    held = queue.write(b"x", shard_key="t")
    queue.read()
    assert cli("cancel", "jobs", held, "--json").objects == [{"message_id": held, "was": "in flight"}]
    assert cli("cancel", "jobs", waiting).code == 3
    assert cli("cancel", "jobs", "nonsense").code == 3


def test_doctor_compares_the_server_with_the_durability_asked_for(cli: Command) -> None:
    healthy, short = cli("doctor"), cli("doctor", "--durability", "disk", "--json")
    assert (healthy.code, facts(healthy.out)["append-only file"]) == (0, "off")
    assert "CVE-2025-49844" in healthy.out
    assert short.objects[0]["lua_fixes"] in (True, False)
    assert short.code == 1
    assert any("append-only" in finding for finding in short.objects[0]["findings"])


def test_doctor_looks_at_a_server_that_clients_refuse(kind: ServerKind | None) -> None:
    with Server(kind, options={"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}) as server:
        told = Command(server.url)("doctor")
    assert told.code == 1
    assert re.search(r"^FATAL .*noeviction$", told.out, re.MULTILINE)
