"""What is stored or sent is as its version's golden sample was, and each golden sample is still read."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shardq import Client, Queue
from shardq.cli import main
from shardq.datasink.messages import Request
from shardq.edge.schema import APPLICATION, checksum
from shardq.edge.spool import Spool
from shardq.jobs.folder import FolderRun
from shardq.model.call import Call
from shardq.protocol.journal import decode
from shardq.protocol.keys import QueueKeys
from tests.parts import GCC
from tests.servers import Server
from tests.upgrade.formats import FORMATS, Format, Sample, complaint, golden, shape
from tests.upgrade.stored import NAMES, Times, restore, still_server

GOLDEN = golden()
ALONE = [
    each for each in FORMATS if each.name in {"call of a task", "wire of edges", "spool", "table of jobs", "archive"}
]
"""Those whose samples need no server."""
EMPTY = {"bulk-offsets", "finished"}
"""The keys in which a sample has nothing: Spark alone writes one, and the other tells those who wait just then."""


def samples(name: str) -> list[Any]:
    """The golden samples of a format, each as a parameter."""
    return [pytest.param(sample, id=version) for version, sample in GOLDEN[name].items()]


def words(rows: Any) -> list[list[bytes]]:
    return [[word.encode("latin-1") for word in row] for row in rows]


def test_each_format_has_golden_samples_and_each_sample_a_format() -> None:
    assert list(GOLDEN) == [each.name for each in FORMATS]


@pytest.mark.parametrize("each", ALONE, ids=lambda each: each.name)
def test_what_is_made_alone_is_as_its_version_was(each: Format) -> None:
    assert complaint(each, GOLDEN[each.name]) == ""


@GCC.needed
@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("each", [each for each in FORMATS if each not in ALONE], ids=lambda each: each.name)
def test_what_is_stored_is_as_its_version_was(each: Format) -> None:
    assert complaint(each, GOLDEN[each.name]) == ""


@GCC.needed
@pytest.mark.runs_in("test-all")
def test_a_sample_has_something_in_each_key() -> None:
    found = {noun: each for sample in ("queue", "journal") for noun, each in [*GOLDEN[sample].items()][-1][1].items()}
    keys = {key.rpartition(":")[2] for key in QueueKeys("plain").fixed}
    assert {noun.partition(" ")[2] for noun in found} >= keys
    without = {key for key in keys if all(not _tells(found[f"{name} {key}"]["rows"]) for name in NAMES)}
    assert without == EMPTY


def _tells(rows: Any) -> bool:
    """Whether there is more than what keeps a key from being empty."""
    return any(row[0] for row in rows)


def test_a_format_that_changes_without_a_number_is_told_and_what_to_do() -> None:
    (spool,) = (each for each in FORMATS if each.name == "spool")
    changed = spool._replace(sample=lambda: {"tables": {"kind": "lines", "rows": [["CREATE TABLE more (x)"]]}})
    told = complaint(changed, GOLDEN["spool"])
    assert told.startswith("spool is not as its version 2 was. If older programs cannot read it, raise its number")
    assert "+ tables: CREATE TABLE more (x)" in told.splitlines()
    assert "no golden sample of its version 2+1" in complaint(changed._replace(additions=1), GOLDEN["spool"])


def test_a_shape_has_no_numbers_and_no_nonces() -> None:
    rows = [["p:NNNNNNNNNNMd:7", "34d34d1b 12.5"], ["p:NNNNNNNNNNMa:8", "34d34d00 1.25"], ["name", "x"]]
    assert shape({"key": {"kind": "hash", "rows": rows}}) == {"key": ["hash", "name -> x", "p:*:0 -> * 0.0"]}


@pytest.mark.parametrize("sample", samples("call of a task"))
def test_a_call_is_read(sample: Sample) -> None:
    for kind, decoded in (("json", msgspec.json.decode), ("msgpack", msgspec.msgpack.decode)):
        ((raw,),) = words(sample[kind]["rows"])
        assert decoded(raw, type=Call) == Call("mail", {"to": "ada"})


@pytest.mark.parametrize("sample", samples("wire of edges"))
def test_no_field_of_the_wire_became_another_one(sample: Sample) -> None:
    (now,) = (each.sample() for each in FORMATS if each.name == "wire of edges")
    for kind, each in sample.items():
        assert {*map(tuple, each["rows"])} <= {*map(tuple, now[kind]["rows"])}


@pytest.mark.parametrize("sample", samples("archive"))
def test_no_column_of_the_archive_is_gone(sample: Sample) -> None:
    (now,) = (each.sample() for each in FORMATS if each.name == "archive")
    for table, each in sample.items():
        assert {*map(tuple, each["rows"])} <= {*map(tuple, now[table]["rows"])}


@pytest.mark.parametrize("sample", samples("table of jobs"))
def test_the_file_of_a_run_is_read(sample: Sample) -> None:
    ((text,),) = sample["run"]["rows"]
    assert FolderRun.told(7, text) == FolderRun(7)


@pytest.mark.parametrize("version", GOLDEN["spool"])
def test_a_spool_is_read(version: str, tmp_path: Path) -> None:
    """(tests/edge/test_version_one.py has version 1.)"""
    path, request = tmp_path / "spool", Request(version=1, queue="q", plain_message=b"x").SerializeToString()
    with closing(sqlite3.connect(path)) as db:
        for (sql,) in GOLDEN["spool"][version]["tables"]["rows"]:
            if "sqlite_" not in sql:
                db.execute(sql)
        db.execute("INSERT INTO counts VALUES (1, 1, ?, 0, 1, 0, 0, 0, 0, 0, 0, 0)", (len(request),))
        name = b"%016d" % 1
        db.execute("INSERT INTO messages VALUES (1, ?, ?, 0, ?)", (name, request, checksum(name, request)))
        db.execute(f"PRAGMA user_version = {int(version.partition('+')[0])}")
        db.execute(f"PRAGMA application_id = {APPLICATION}")
        db.commit()
    with closing(Spool(path, max_bytes=10_000_000)) as spool:
        assert spool.counts().waiting == 1


@pytest.mark.parametrize("sample", samples("journal"))
def test_a_journal_is_read(sample: Sample) -> None:
    for each in sample.values():
        rows = sorted(words(each["rows"]), key=lambda row: int(row[0].partition(b"-")[0]))
        number = int(rows[0][0].partition(b"-")[0])
        first = number - len(rows[0][2].partition(b"\n")[0])
        assert (found := decode([(row[0], row[1:]) for row in rows], first)).lost == 0
        assert "written" in found.kind


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("sample", samples("declared file"))
def test_a_declared_file_is_applied(sample: Sample, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join(row[0] for row in sample["lines"]["rows"])
    (tmp_path / "queues.toml").write_text(text)
    with Server() as server:
        assert main(["--url", server.url, "apply", str(tmp_path / "queues.toml"), "--yes"]) == 0
        capsys.readouterr()
        assert main(["--url", server.url, "export", *NAMES]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if line]
    assert told == [row[0] for row in sample["lines"]["rows"]]


@pytest.fixture
def restored(request: pytest.FixtureRequest) -> Iterator[tuple[Client, Times]]:
    """A server with a golden sample of all that lies in Redis."""
    GCC.need()
    with still_server() as (client, raw, times):
        for name in ("journal", "bindings"):
            restore(raw, [*GOLDEN[name].values()][-1])
        restore(raw, {"shardq:queues": [*GOLDEN["list of queues"].values()][-1]["queues"]})
        restore(raw, request.param)
        times.move_on(11_000)
        yield client, times


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("restored", samples("queue"), indirect=True)
def test_a_queue_is_read_and_emptied(restored: tuple[Client, Times]) -> None:
    client, times = restored
    plain, nested = (client.queue(name) for name in NAMES)
    assert [*client.queues()] == ["nested", "plain"]
    assert [each.pattern for each in client.bindings()] == ["orders.*.created"]
    assert plain.result("1800000000000-1-1") == {"sum": 1}
    assert [(each.shard_key, each.reason) for each in plain.dead()] == [("c", "no such account")]
    assert (plain.weights(), [*plain.plans()]) == ({"weighty": 3}, ["gold"])
    assert [(each.name, each.paused) for each in plain.schedules.list()] == [("often", False), ("resting", True)]
    assert [each.kind for each in plain.actions()] == ["redrive"]
    assert [each.id for each in plain.workers()] == ["w"]
    assert plain.journal(1000).lost == nested.journal(1000).lost == 0
    plain.resume("paused")
    times.move_on(1_000_000)
    for queue in (plain, nested):
        while found := queue.read_many(100):
            assert queue.ack_many(found) == []
        emptied(queue)


def emptied(queue: Queue) -> None:
    stats = queue.stats()
    assert (stats.backlog, stats.in_flight, stats.delayed) == (0, 0, 0)
    assert stats.acked > 0


def test_the_numbers_are_as_the_data_say() -> None:
    told: Mapping[str, str] = {each.name: each.version for each in FORMATS if each in ALONE}
    for name, version in told.items():
        assert version == [*GOLDEN[name]][-1], "the newest golden sample is of an other version"
    assert json.loads(GOLDEN["table of jobs"][told["table of jobs"]]["run"]["rows"][0][0])["version"] == 1
