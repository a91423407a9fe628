"""A spool that an earlier version has left with messages in it: this version delivers them, and loses nothing else."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from shardq.datasink.messages import Request
from shardq.edge import Edge
from shardq.edge.schema import SCHEMA
from shardq.edge.spool import Spool
from shardq.errors import SpoolDamaged
from tests.edge.sink import Sink, running

TABLES = """
CREATE TABLE messages (seq INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB NOT NULL, request BLOB NOT NULL, at REAL);
CREATE UNIQUE INDEX by_id ON messages (id);
CREATE TABLE refused (seq INTEGER PRIMARY KEY, id BLOB, request BLOB, reason TEXT, text TEXT, at REAL);
CREATE TABLE counts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE kept (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO counts VALUES ('bytes', 0), ('waiting', 0), ('accepted', 0), ('acked', 0), ('refused', 0), ('dropped', 0);
"""
"""As version 1 made them."""


def left(path: Path, count: int = 1000, refused: int = 3) -> list[bytes]:
    """Make a spool of version 1: of the messages that it took 7 were acked, 2 dropped, and some refused. The ids."""
    ids = [b"%016d" % number for number in range(count)]
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(TABLES)
        db.execute("BEGIN")
        db.executemany(
            "INSERT INTO messages VALUES (?, ?, ?, 5.0)",
            [(number, each, request(each)) for number, each in enumerate(ids, 20)],
        )
        db.executemany(
            "INSERT INTO refused VALUES (?, ?, ?, 'INVALID', 'no', 4.0)",
            [(number, b"r%d" % number, request(b"r%d" % number)) for number in range(1, refused + 1)],
        )
        db.execute("INSERT INTO kept VALUES ('note', x'0102')")
        counts = {"waiting": count, "accepted": count + refused + 10, "acked": 7, "refused": refused + 1, "dropped": 2}
        db.executemany("UPDATE counts SET value = ? WHERE name = ?", [(value, name) for name, value in counts.items()])
        db.execute("COMMIT")
        db.execute("PRAGMA user_version = 1")
    return ids


def request(message_id: bytes) -> bytes:
    given = Request(version=1, message_id=message_id, queue="jobs", shard_key=b"t", codec="b", plain_message=message_id)
    return bytes(given.SerializeToString())


@pytest.mark.parametrize("batches", [500, 0])
def test_its_messages_are_delivered(tmp_path: Path, batches: int) -> None:
    ids = left(tmp_path / "s.db")
    with running(Sink(batches=batches)) as sink, Edge(sink.address, spool=tmp_path / "s.db") as edge:
        sent = edge.send(b"new", queue="jobs", shard_key="t")
        edge.flush(60)
        assert sent.outcome() == "stored"
        assert sink.stored == {**{each: each for each in ids}, bytes.fromhex(sent): b"new"}
        assert [each.message_id for each in sink.requests][: len(ids)] == ids


def test_all_else_is_taken_over(tmp_path: Path) -> None:
    left(tmp_path / "s.db")
    spool = Spool(tmp_path / "s.db")
    counts = spool.counts()
    assert (counts.waiting, counts.accepted, counts.acked, counts.refused, counts.dropped) == (1000, 1013, 7, 4, 2)
    assert (counts.held, counts.forgotten, counts.oldest_at) == (0, 3, 5.0)
    assert [(each.id, each.reason, each.at) for each in spool.refusals.kept()] == [
        (b"r%d" % number, "INVALID", 4.0) for number in (1, 2, 3)
    ]
    assert spool.kept("note") == b"\x01\x02"
    assert spool.refusals.resend() == 3
    assert len(spool.after(0, 2000, 2**30).messages) == 1003
    spool.check()
    assert spool.counts().waiting == 1003, "all checksums are right"
    spool.close()
    with closing(sqlite3.connect(tmp_path / "s.db")) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA,)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_one_that_fails_on_the_way_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids, sums = left(tmp_path / "s.db"), list[bytes]()

    def fails(name: bytes, _content: bytes) -> int:
        sums.append(name)
        return 1 // (500 - len(sums))

    with monkeypatch.context() as failing:
        failing.setattr("shardq.edge.version_one.checksum", fails)
        with pytest.raises(SpoolDamaged, match="cannot be used"):
            Spool(tmp_path / "s.db")
    spool = Spool(tmp_path / "s.db")
    assert [each.id for each in spool.after(0, 2000, 2**30).messages] == ids
    spool.close()
