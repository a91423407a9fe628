"""Damaged spools, dictionaries and answers: what can be read arrives once, and what cannot is named."""

from __future__ import annotations

import contextlib
import gc
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from shardq.edge import Edge, EdgeMessage
from shardq.edge.file import SpoolFile
from shardq.edge.schema import PAGE_BYTES
from shardq.edge.spool import Spool, SpoolHold
from shardq.errors import MessageRefused, SpoolDamaged
from tests.edge.sink import Sink, running
from tests.edge.test_delivering import made, many, sink
from tests.selection import SOAK
from tests.waiting import eventually

__all__ = ["made", "sink"]  # pytest finds the fixtures here

pytestmark = pytest.mark.timeout(120)
Made = Callable[..., Edge]
ROUNDS = 100 if SOAK else 4


def spooled(path: Path, count: int, size: int = 500) -> list[bytes]:
    """A closed spool with messages, whose ids are returned."""
    with Edge(f"unix:{path}.nowhere", spool=path) as edge:
        return [bytes.fromhex(each) for each in edge.send_many(many(count, size))]


def change(path: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, values)


def flip(path: Path, place: int, count: int = 1) -> None:
    """Flip bits of the file, as a worn-out flash does."""
    with path.open("r+b") as file:
        file.seek(place)
        old = file.read(count)
        file.seek(place)
        file.write(bytes(each ^ 0xA5 for each in old))


def leaf_pages(path: Path) -> list[int]:
    """Where the pages begin that hold rows of a table and nothing else."""
    content = path.read_bytes()
    return [
        at
        for at in range(PAGE_BYTES, len(content), PAGE_BYTES)
        if content[at] == 0x0D and len(content[at : at + 8]) == 8
    ]


def aside(path: Path) -> Path:
    """The damaged file, which was moved."""
    (found,) = (each for each in path.parent.glob(f"{path.name}.damaged-*") if each.suffix[-4:] not in ("-wal", "-shm"))
    return found


def test_one_flipped_row_is_named_and_the_others_arrive(sink: Sink, made: Made, tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    ids = spooled(path, 1000, 100)
    with closing(sqlite3.connect(path)) as db, db:
        (request,) = db.execute("SELECT request FROM messages WHERE seq = 500").fetchone()
        db.execute("UPDATE messages SET request = ? WHERE seq = 500", (request[:60] + b"?" + request[61:],))
        db.execute("UPDATE messages SET id = 'text' WHERE seq = 700")
    edge = made()
    with pytest.raises(MessageRefused, match="2 of DAMAGED"):
        edge.flush(60)
    assert set(sink.stored) == {*ids} - {ids[499], ids[699]}
    assert [(each.reason, each.id) for each in edge.refused()] == [("DAMAGED", ids[499]), ("DAMAGED", b"text")]
    assert edge.resend() == 0


def test_a_row_that_is_no_request_is_set_aside(sink: Sink, made: Made, tmp_path: Path) -> None:
    edge = made()
    edge.spool.put([(b"bad", b"\xff\xff\xff")])
    edge.send_many(many(10))
    with pytest.raises(MessageRefused, match="DAMAGED"):
        edge.flush(60)
    assert len(sink.stored) == 10


def test_a_damaged_page_gives_up_what_can_be_read(sink: Sink, made: Made, tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    ids = spooled(path, 1000)
    pages = leaf_pages(path)
    flip(path, pages[len(pages) // 2], 32)
    edge = made()
    with pytest.raises(MessageRefused, match="DAMAGED"):
        edge.flush(60)
    counts = edge.status().spool
    assert len(sink.stored) == len(sink.requests) > 980
    assert counts.refused == 1000 - len(sink.stored) > 0
    assert len([each for each in edge.refused() if each.reason == "DAMAGED"]) == counts.refused
    assert aside(path).stat().st_size > 100_000
    missing = {number for number, each in enumerate(ids, 1) if each not in sink.stored}
    assert all(edge.spool.fate(number).refused for number in missing)


def test_a_file_whose_root_page_is_damaged_is_moved_aside_and_all_is_named(
    sink: Sink, made: Made, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "spool.db"
    spooled(path, 200)
    with closing(sqlite3.connect(path)) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'messages'").fetchone()
    flip(path, (root - 1) * PAGE_BYTES, 64)
    edge = made()
    edge.send(b"7:new", queue="jobs", shard_key="t")
    with pytest.raises(MessageRefused, match="200 of DAMAGED"):
        edge.flush(60)
    assert list(sink.stored.values()) == [b"7:new"]
    assert "0 waiting messages were saved, 200 could not be read" in caplog.text


def test_a_file_that_cannot_be_opened_is_moved_aside(
    made: Made, tmp_path: Path, sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "spool.db"
    spooled(path, 20)
    flip(path, 0, 24)
    edge = made()
    edge.send(b"7:new", queue="jobs", shard_key="t")
    eventually(lambda: b"7:new" in sink.stored.values())
    assert aside(path).stat().st_size > PAGE_BYTES
    assert "nobody knows how many could not be read" in caplog.text


def test_a_damaged_table_of_tables_that_is_no_text_is_damage_too(tmp_path: Path) -> None:
    """SQLite quotes it in its error, which Python cannot read."""
    path = tmp_path / "spool.db"
    spooled(path, 20)
    flip(path, path.read_bytes().index(b"CREATE INDEX held_by_since"), 12)
    with closing(Spool(path)) as spool:
        assert spool.counts().waiting == 0
    assert aside(path).stat().st_size > PAGE_BYTES


def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    change(path, "CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(SpoolDamaged, match="another program's"):
        Spool(path)
    flip(path, 100, 200)
    with pytest.raises(SpoolDamaged):
        Spool(path)
    assert [each.name for each in tmp_path.glob("other.db*") if "damaged" in each.name] == []
    assert len(path.read_bytes()) == len(before)


def test_processes_that_have_the_file_open_go_on_with_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    one, other = Spool(path), Spool(path)
    one.put([(b"%d" % number, b"x" * 500) for number in range(500)])
    one.file.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    pages = leaf_pages(path)
    flip(path, pages[len(pages) // 2], 32)
    for each in (one, other):
        each.file.db.execute("PRAGMA cache_size = 0")
        each.file.db.execute("PRAGMA cache_size = -2000")
    one.check()
    other.put([(b"new", b"y")])
    assert one.after(499, 100, 10**9).messages[-1].id == b"new"
    assert other.counts().waiting == one.counts().waiting > 480
    assert one.file.path.stat().st_ino == one.file._inode == other.file._inode
    one.close()
    other.close()


def test_a_swap_that_a_kill_has_cut_short_is_finished(tmp_path: Path) -> None:
    """The new file is complete, and not in its place yet."""
    path = tmp_path / "s.db"
    spooled(path, 30)
    fresh = SpoolFile(tmp_path / "fresh.db", on_disk=False)
    fresh.close()
    (tmp_path / "fresh.db").rename(tmp_path / "s.db.salvaged")
    spool = Spool(path)
    assert spool.counts().waiting == 0
    assert len([*tmp_path.glob("s.db.damaged-*")]) >= 1
    spool.close()


SWAPS = """
import os, signal, sys
from pathlib import Path
from shardq.edge.spool import Spool
rename, left = Path.rename, [int(sys.argv[2])]

def counted(path, target):
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    left[0] -= 1
    return rename(path, target)

spool = Spool(sys.argv[1])
Path.rename = counted
spool.check()
"""


@pytest.mark.parametrize("step", range(5))
def test_a_kill_between_any_two_steps_of_the_swap_loses_nothing(tmp_path: Path, step: int) -> None:
    """The steps: the new file is complete, the log, its index and the damaged file are aside, the new one is there."""
    path = tmp_path / "s.db"
    spooled(path, 1000)
    pages = leaf_pages(path)
    flip(path, pages[len(pages) // 2], 32)
    done = subprocess.run([sys.executable, "-c", SWAPS, str(path), str(step)], check=False, timeout=60)
    assert done.returncode == -9
    spool = Spool(path)
    spool.check()
    assert 980 < spool.counts().waiting < 1000
    assert spool.counts().waiting + spool.counts().refused == 1000
    assert [each.name for each in tmp_path.iterdir() if "salvag" in each.name] == []
    spool.close()


def test_what_a_kill_has_left_of_a_copy_is_removed(tmp_path: Path) -> None:
    spooled(tmp_path / "s.db", 10)
    for suffix in ("", "-wal", "-shm"):
        (tmp_path / f"s.db.salvaging{suffix}").write_bytes(bytes(10_000))
    Spool(tmp_path / "s.db").close()
    assert [each.name for each in tmp_path.iterdir() if "salvag" in each.name] == []


def test_damage_at_the_beginning_is_passed_over_however_many_messages_were_there_before(
    sink: Sink, made: Made, tmp_path: Path
) -> None:
    """Of a spool that has seen a million million messages not each number is looked up."""
    path = tmp_path / "spool.db"
    Spool(path).close()
    change(path, "INSERT INTO sqlite_sequence VALUES ('messages', 1000000000000)")
    ids = spooled(path, 1000)
    flip(path, path.read_bytes().index(ids[0]) // PAGE_BYTES * PAGE_BYTES, 32)
    edge = made()
    with pytest.raises(MessageRefused, match="DAMAGED"):
        edge.flush(60)
    assert 980 < len(sink.stored) < 1000
    assert set(sink.stored) < set(ids)
    assert edge.status().spool.refused == 1000 - len(sink.stored)


def test_a_damaged_row_far_behind_all_others_costs_no_lookup_of_each_number_between(tmp_path: Path) -> None:
    """Each number between can be looked up, and is not there; what comes behind any of them cannot be read."""
    path, request = tmp_path / "spool.db", Random(1).randbytes(20_000)
    spool = Spool(path)
    spool.put([*((b"%d" % number, b"x") for number in range(19)), (b"far", request)])
    spool.close()
    change(path, "UPDATE messages SET seq = 1000000000000 WHERE id = ?", b"far")
    flip(path, path.read_bytes().index(request[10_000:10_032]) // PAGE_BYTES * PAGE_BYTES, 4)  # where it continues
    spool = Spool(path)
    assert [each.seq for each in spool.after(0, 100, 10**9).messages] == [*range(1, 20)]
    assert spool.counts().waiting == 19
    spool.close()
    assert aside(path).exists()


def test_any_number_of_flipped_rows_is_set_aside_at_once(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s.db")
    spool.put([(b"%d" % number, b"x") for number in range(4001)])
    spool.hold([SpoolHold(seq, "p", 1, "NO_QUEUE", "no") for seq in range(2001, 4001)])
    spool.file.db.execute("UPDATE messages SET sum = 0 WHERE seq <= 4000")
    assert spool.first_held("p") is None
    assert [each.id for each in spool.after(0, 1, 1).messages] == [b"4000"]
    assert (spool.counts().waiting, spool.counts().refused, spool.counts().held) == (1, 4000, 0)
    spool.close()


def test_counts_that_cannot_be_read_begin_with_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    spool = Spool(path)
    spool.put([(b"%d" % number, b"x") for number in range(30)])
    spool.refuse([(number, "INVALID", "bad") for number in range(1, 11)])
    spool.close()
    with closing(sqlite3.connect(path)) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'counts'").fetchone()
    flip(path, (root - 1) * PAGE_BYTES, 32)
    spool = Spool(path)
    spool.check()
    counts = spool.counts()
    assert (counts.waiting, counts.refused, counts.accepted) == (20, 10, 30)
    spool.close()


@pytest.mark.parametrize("column", ["waiting", "held", "acked", "refused_bytes"])
@pytest.mark.parametrize("value", [None, "x", b"x"])
def test_counts_that_are_no_numbers_are_counted_anew(tmp_path: Path, column: str, value: object) -> None:
    spool = Spool(tmp_path / "s.db")
    spool.put([(b"a", b"x"), (b"b", b"y")])
    spool.file.db.execute(f"UPDATE counts SET {column} = ?", (value,))  # noqa: S608 - a column's name
    spool.refuse([(1, "INVALID", "bad")])
    assert spool.counts().waiting == 1
    assert [each.id for each in spool.refusals.kept()] == [b"a"]
    spool.close()


def opened(folder: Path) -> list[str]:
    """What this process holds open of a folder. Descriptors that other tests left come and go meanwhile."""
    found = list[str]()
    for each in Path("/dev/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(each.readlink()))
    return [each for each in found if each == str(folder) or each.startswith(f"{folder}/")]


def test_a_file_that_is_no_spool_costs_no_descriptor_each_time_it_is_opened(tmp_path: Path) -> None:
    (tmp_path / "s.db").write_bytes(b"something else " * 1000)
    for _ in range(5):
        with pytest.raises(SpoolDamaged, match="is no spool"):
            Spool(tmp_path / "s.db")
    gc.collect()
    assert opened(tmp_path) == []


LOCKS = """
import fcntl, os, sys
fcntl.lockf(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)
"""


def test_to_look_whose_a_file_is_drops_no_lock_on_it(tmp_path: Path) -> None:
    """SQLite has a shared lock on these bytes while a file is open, and any descriptor that is closed drops it."""
    Spool(tmp_path / "s.db").close()
    spool = Spool(tmp_path / "s.db")
    assert spool.file._is_ours()
    done = subprocess.run([sys.executable, "-c", LOCKS, str(spool.path)], check=False, capture_output=True, timeout=60)
    assert b"BlockingIOError" in done.stderr
    spool.close()


def test_refusals_that_cannot_be_read_make_no_message_a_stored_one(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    spool = Spool(path)
    spool.put([(b"%d" % number, b"x" * 1000) for number in range(100)])
    spool.refuse([(number, "INVALID", "bad") for number in range(1, 80)])
    spool.close()
    with closing(sqlite3.connect(path)) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'refused'").fetchone()
    flip(path, (root - 1) * PAGE_BYTES, 64)
    spool = Spool(path)
    spool.check()
    assert (spool.counts().waiting, spool.counts().forgotten) == (21, 79)
    assert spool.fate(5).is_forgotten
    assert spool.fate(90).is_waiting
    spool.close()


def test_counts_that_are_wrong_are_counted_anew(sink: Sink, made: Made, tmp_path: Path) -> None:
    spooled(tmp_path / "spool.db", 20)
    change(tmp_path / "spool.db", "UPDATE counts SET waiting = 25, held = 3")
    edge = made()
    edge.flush(60)
    assert len(sink.stored) == 20


@pytest.mark.parametrize("is_sound", [False, True])
def test_a_damaged_dictionary_is_forgotten_and_one_is_trained_anew(
    sink: Sink, made: Made, tmp_path: Path, rng: Random, is_sound: bool
) -> None:
    """*is_sound*: the row is as it was written, and yet no dictionary."""
    words = [b"%x" % rng.getrandbits(64) for _ in range(2000)]
    payloads = [b" ".join(rng.choices(words, k=250)) for _ in range(1500)]
    bad = b"\x37\xa4\x30\xec" + b"\x01" * 500
    spool = Spool(tmp_path / "spool.db")
    spool.keep("dictionary", bad)
    spool.close()
    if not is_sound:
        change(tmp_path / "spool.db", "UPDATE kept SET value = ?", bad + b"!")
    edge = made()
    edge.send_many(EdgeMessage(each, "t", queue="q") for each in payloads)
    edge.flush(60)
    eventually(lambda: edge._delivering._compressor.using is not None, 60)
    assert sorted(sink.stored.values()) == sorted(payloads)
    assert edge.spool.kept("dictionary") not in (bad, None)


def test_answers_that_nobody_understands_end_no_delivery(sink: Sink, made: Made, rng: Random) -> None:
    sink.act = lambda request, number: rng.choice(["babble", "ack", "ack", "twice", "drop", "lose"])
    edge = made()
    edge.send_many(many(100))
    eventually(lambda: edge.status().delivery.connections > 3, 60)
    sink.act = lambda request, number: "ack"
    edge.flush(100)
    assert len(sink.stored) == 100


def test_an_exception_that_nobody_thought_of_is_told_and_sending_goes_on(
    sink: Sink, made: Made, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    edge = made()
    fill, failures = edge._delivering._fill, [KeyError("a bug"), ValueError("one more")]

    async def failing() -> bool:
        if failures:
            raise failures.pop()
        return await fill()

    monkeypatch.setattr(edge._delivering, "_fill", failing)
    edge.send_many(many(10))
    edge.flush(60)
    assert len(sink.stored) == 10
    assert "unexpected ValueError in failing" in caplog.text
    assert "unexpected KeyError in failing" in caplog.text


LIVES = """
import sys
from shardq.edge import Edge, effort, prefixes
effort.Effort.uses_prefix, prefixes.MOST = True, 2**15
edge = Edge(sys.argv[1], spool=sys.argv[2])
for number in range(100_000):
    print(edge.send(b"%s.%d:" % (sys.argv[3].encode(), number) + b"x" * 300, queue="jobs", shard_key="t"), flush=True)
"""


@pytest.mark.timeout(1800 if SOAK else 170)
@pytest.mark.runs_in("test-all", "soak")
@pytest.mark.parametrize("batches", [0, 500], ids=["singles", "prefixes"])
def test_kills_with_flipped_rows_damaged_dictionaries_and_rubbish_answers(
    tmp_path: Path, rng: Random, batches: int
) -> None:
    """All that was accepted arrives once, or is named as damaged, by itself or by the part of the file it was in."""
    path, told, spoiled = tmp_path / "s.db", set[bytes](), 0
    address = f"unix:{tmp_path}/sock"
    sink = Sink(act=lambda request, number: rng.choices(["ack", "babble", "twice", "lose", "cut"], [90, 1, 6, 2, 1])[0])
    sink.batches, sink.most_prefix = batches, 2**20 if batches else 0
    with running(sink, address):
        for life in range(ROUNDS):
            told |= killed(path, address, life, rng)
            spoiled += spoil(path, rng)
        sink.act = lambda request, number: "ack"
        with Edge(address, spool=path) as edge:
            eventually(lambda: edge.status().spool.waiting == 0, 120)
            named = edge.refused()
            counts = edge.status().spool
    lost = told - set(sink.stored)
    assert max(Counter(payload.partition(b":")[0] for payload in sink.stored.values()).values()) == 1
    assert sink.doubled == []
    assert all(each.reason == "DAMAGED" for each in named)
    assert (counts.accepted, counts.waiting) == (counts.acked + counts.refused, 0)
    assert len(lost) <= counts.refused <= len(named) + counts.forgotten
    assert len(lost) <= 40 * spoiled


def killed(path: Path, address: str, life: int, rng: Random) -> set[bytes]:
    """A producer that is killed while it spools and sends: the ids that it told."""
    with subprocess.Popen(
        [sys.executable, "-c", LIVES, address, str(path), str(life)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(rng.randrange(1, 150))]
        process.kill()
        told += process.stdout.readlines()
    return {bytes.fromhex(line.strip()) for line in told if len(line) == 33}


def spoil(path: Path, rng: Random) -> int:
    """Damage what the process has left; how many rows or pages."""
    rows = list[Any]()
    with closing(sqlite3.connect(path, isolation_level=None)) as db, contextlib.suppress(sqlite3.DatabaseError):
        rows = db.execute("SELECT seq, request FROM messages ORDER BY random() LIMIT 2").fetchall()
        for seq, request in rows:
            at = rng.randrange(len(request))
            flipped = request[:at] + bytes([request[at] ^ 1 << rng.randrange(8)]) + request[at + 1 :]
            db.execute("UPDATE messages SET request = ? WHERE seq = ?", (flipped, seq))
        if rng.random() < 0.3:
            db.execute("INSERT OR REPLACE INTO kept VALUES ('dictionary', ?, 0)", (rng.randbytes(300),))
    pages = leaf_pages(path)
    if rng.random() < 0.3 and len(pages) > 5:
        flip(path, rng.choice(pages[2:]), 16)
        return len(rows) + 1
    return len(rows)
