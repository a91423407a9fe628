"""assign, --list and --remove, as real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardq import Queue
from shardq.sharding import overlap
from tests.cli.conftest import Command


@pytest.mark.runs_in("test-all")
def test_shard_keys_are_assigned_listed_and_taken_back(cli: Command, queue: Queue, tmp_path: Path) -> None:
    file = tmp_path / "names"
    file.write_text("acct 2\n\nüber\n")
    told = cli("assign", "jobs", "acct-1", "--names", str(file), "--max-overlap", "2", "--yes")
    assert (told.code, told.out) == (0, "3 shard keys assigned, any two share at most 2 streams\n")
    made = queue.assignment()
    listed = cli("assign", "jobs", "--list")
    assert listed.out.splitlines() == [
        "shard key  streams",
        *(f"{name:<9}  {','.join(map(str, made[name]))}" for name in ("acct 2", "acct-1", "über")),
    ]
    assert listed.err == "shardq: 3 shard keys of at most 14; any two share at most 2 streams\n"
    shards = {each["shard_key"]: each["shard"] for each in cli("assign", "jobs", "--list", "--json").objects}
    assert max(overlap(a, b) for name, a in shards.items() for other, b in shards.items() if name != other) <= 2
    assert cli("assign", "jobs", "--remove", "--yes", "--json", "--names", "-", stdin=b"acct-1\n").objects == [
        {"queue": "jobs", "assigned": 2}
    ]
    assert cli("assign", "jobs", "--remove", "--all", "--yes").out == "0 shard keys still assigned\n"
    none = cli("assign", "jobs", "--list")
    assert (none.code, none.out, none.err) == (3, "", "shardq: queue 'jobs' has no assigned shard keys\n")


@pytest.mark.runs_in("test-all")
def test_keys_that_a_terminal_would_obey_are_shown_as_escapes(cli: Command, queue: Queue) -> None:
    queue.assign([b"\xff\x1b[31m", "a\nb"])
    assert "\\xff\\x1b[31m" in cli("assign", "jobs", "--list").out
    assert "a\\nb" in cli("assign", "jobs", "--list").out
    assert {"shard_key_base64", "shard_key"} <= {
        name for each in cli("assign", "jobs", "--list", "--json").objects for name in each
    }


@pytest.mark.runs_in("test-all")
def test_what_cannot_be_done_is_said(cli: Command, queue: Queue, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_bytes(b"\xff")
    for words, code, message in (
        (("assign", "jobs"), 2, "give shard keys, or --max-overlap"),
        (("assign", "jobs", "a"), 2, "use --yes"),
        (("assign", "jobs", "a", "--yes", "--max-overlap", "9"), 2, "max_overlap must be a whole number from 0 to 3"),
        (("assign", "jobs", "--names", str(bad), "--yes"), 2, "the file of --names must be UTF-8"),
        (("assign", "jobs", *"abcdefghijklmnopqrstuvwxyz", "--yes"), 2, "no room for tenant"),
        (("assign", "none", "a", "--yes"), 3, "there is no queue 'none'"),
        (("assign", "jobs", "--remove"), 2, "give either shard keys or --all"),
        (("assign", "jobs", "--remove", "a", "--all", "--yes"), 2, "give either shard keys or --all"),
        (("assign", "none", "--list"), 3, "there is no queue 'none'"),
    ):
        told = cli(*words)
        assert (told.code, told.out, told.err.count("\n")) == (code, "", 1), words
        assert message in told.err
    cli("assign", "jobs", "a", "--yes")
    shrink = cli("configure", "jobs", "streams=1", "--yes")
    assert shrink.code == 2
    assert "unassign() them" in shrink.err
