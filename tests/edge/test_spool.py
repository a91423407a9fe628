"""The spool: what was put is there until it is acked, refused or dropped, whatever happens to processes and disks."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing import Process
from pathlib import Path
from random import Random

import pytest

from shardq.edge.file import LOG_BYTES
from shardq.edge.lock import DeliveryLock
from shardq.edge.schema import OVERHEAD, PAGE_BYTES
from shardq.edge.spool import Spool
from shardq.errors import ConfigError, SpoolDamaged, SpoolFull
from shardq.testing import ManualClock
from tests.parts import LINUX, ROOT
from tests.waiting import eventually

Open = Callable[..., Spool]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool.db"


@pytest.fixture
def opened(path: Path) -> Iterator[Open]:
    """Opens the spool, as often as one likes."""
    spools: list[Spool] = []

    def open_spool(**settings: object) -> Spool:
        spools.append(Spool(path, **settings))  # type: ignore[arg-type]
        return spools[-1]

    yield open_spool
    for each in spools:
        each.close()


def message(number: int, size: int = 10) -> tuple[bytes, bytes]:
    return b"id-%d" % number, b"%d:" % number + b"x" * size


def numbers(spool: Spool) -> list[int]:
    """The numbers of all messages, in order."""
    return [int(each.request.partition(b":")[0]) for each in spool.after(0, 10**6, 10**9).messages]


@pytest.mark.parametrize("path", ["/", "."])
def test_a_folder_is_no_spool(path: str) -> None:
    with pytest.raises(ConfigError, match="is a folder: name a file in it"):
        Spool(path)


def test_messages_stay_in_order_until_they_are_acked(opened: Open) -> None:
    spool = opened(clock=ManualClock(wall=1_700_000_000.0))
    assert spool.put([message(each) for each in range(10)]) == range(1, 11)
    counts = spool.counts()
    assert (counts.waiting, counts.accepted, counts.acked) == (10, 10, 0)
    assert counts.oldest_at == 1_700_000_000.0
    first = spool.after(0, 3, 10**6).messages
    assert [each.id for each in first] == [b"id-0", b"id-1", b"id-2"]
    spool.acked([first[0].seq, first[2].seq])
    spool.acked([first[0].seq])  # an ack may come twice
    assert numbers(spool) == [1, *range(3, 10)]
    again = opened()
    assert numbers(again) == [1, *range(3, 10)]
    assert (again.counts().waiting, again.counts().acked) == (8, 2)
    again.acked([each.seq for each in again.after(0, 100, 10**6).messages])
    assert again.counts()[:-1] == (0, 0, 0, 10, 10, 0, 0, 0, 0.0)


def test_a_page_is_bounded_by_bytes_but_has_one_message(opened: Open) -> None:
    spool = opened()
    spool.put([message(each, 1000) for each in range(5)])
    assert len(spool.after(0, 10, 2500).messages) == 2
    assert len(spool.after(0, 10, 1).messages) == 1


def test_a_full_spool_refuses_all_or_drops_the_oldest(opened: Open) -> None:
    """What the files take counts: the log, and each page of the database."""
    spool = opened(max_bytes=LOG_BYTES + 60 * PAGE_BYTES)
    put = 0
    with pytest.raises(SpoolFull, match="nothing was added"):  # noqa: PT012 - how many fit is SQLite's matter
        for put in range(1000):
            spool.put([message(put, 3000)])
    assert 40 < put < 60
    assert numbers(spool) == list(range(put))
    assert spool.counts().file_bytes < LOG_BYTES + 70 * PAGE_BYTES
    dropping = opened(max_bytes=LOG_BYTES + 60 * PAGE_BYTES, drops_oldest=True)
    dropping.put([message(put, 3000), message(put + 1, 3000)])
    gone = dropping.counts().dropped
    assert 0 < gone < 10
    assert numbers(dropping) == list(range(gone, put + 2))
    assert [(each.id, each.reason) for each in dropping.refusals.kept()] == [
        (b"id-%d" % number, "DROPPED") for number in range(gone)
    ]
    with pytest.raises(SpoolFull):
        dropping.put([message(each, 3000) for each in range(100)])
    assert numbers(dropping) == list(range(gone, put + 2))
    assert dropping.counts().dropped == gone


@pytest.mark.runs_in("test-all")
def test_what_was_refused_is_kept_for_people_within_bytes(opened: Open) -> None:
    spool = opened(max_refused_bytes=20 * (1000 + 20))
    spool.put([message(each, 900) for each in range(100)])
    for each in spool.after(0, 99, 10**9).messages:
        spool.refuse([(each.seq, "INVALID", "it is bad")])
    assert (spool.counts().waiting, spool.counts().refused) == (1, 99)
    kept = spool.refusals.kept()
    assert [each.id for each in kept] == [b"id-%d" % number for number in range(99 - len(kept), 99)]
    assert 18 < len(kept) < 22
    assert kept[-1].request == message(98, 900)[1]
    assert spool.fate(1).is_forgotten
    assert spool.fate(98).refused


def test_a_disk_that_is_full_loses_nothing(opened: Open, path: Path) -> None:
    """The pragma gives the error that a full disk gives."""
    spool = opened(max_bytes=10**9)
    (pages,) = spool.file.db.execute("PRAGMA page_count").fetchone()
    spool.file.db.execute(f"PRAGMA max_page_count = {pages + 8}")
    put = 0
    with pytest.raises(SpoolFull, match="disk is full"):  # noqa: PT012 - how many fit is SQLite's matter
        for put in range(1000):
            spool.put([message(put, 1000)])
    assert numbers(spool) == list(range(put))
    spool.acked([spool.after(0, 1, 1).messages[0].seq])
    spool.file.db.execute(f"PRAGMA max_page_count = {pages + 1000}")
    spool.put([message(put)])
    assert numbers(spool) == list(range(1, put + 1))


@ROOT.needed
@LINUX.needed
def test_a_real_disk_that_is_full_loses_nothing(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", str(disk)], check=True)
    try:
        spool, put = Spool(disk / "spool.db"), 0
        with pytest.raises(SpoolFull, match="disk is full"):  # noqa: PT012
            for put in range(10_000):
                spool.put([message(put, 2000)])
        assert put > 50
        assert numbers(spool) == list(range(put))
        subprocess.run(["mount", "-o", "remount,size=12m", str(disk)], check=True)
        spool.put([message(put)])
        assert numbers(spool) == list(range(put + 1))
        spool.close()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_what_is_no_spool_is_refused(path: Path, opened: Open) -> None:
    path.write_bytes(b"something else " * 1000)
    with pytest.raises(SpoolDamaged, match="is no spool"):
        opened()
    assert path.read_bytes().startswith(b"something else")
    path.unlink()
    for version, told in ((99, "is of version 99"), (1, "is of version 1, or another program's")):
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as db:
            db.execute(f"PRAGMA user_version = {version}")
        with pytest.raises(SpoolDamaged, match=told):
            opened()


def test_a_forked_child_must_open_its_own(opened: Open) -> None:
    spool = opened()
    spool.put([message(1)])
    pid = os.fork()
    if not pid:
        try:
            spool.put([message(2)])
        except SpoolDamaged:
            os._exit(17)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 17
    assert numbers(spool) == [1]


def test_several_processes_put_at_once(opened: Open, path: Path) -> None:
    processes = [Process(target=_put_some, args=(path, each)) for each in range(3)]
    for each in processes:
        each.start()
    for each in processes:
        each.join()
    spool = opened()
    assert sorted(numbers(spool)) == list(range(300))
    assert spool.counts().bytes == sum(len(each.request) + OVERHEAD for each in spool.after(0, 1000, 10**9).messages)


def _put_some(path: Path, part: int) -> None:
    spool = Spool(path)
    for number in range(100 * part, 100 * part + 100):
        spool.put([message(number)])


@pytest.mark.runs_in("test-all")
def test_what_was_put_survives_a_sigkill_at_any_point(opened: Open, path: Path, rng: Random) -> None:
    """The process says what it has put, line by line. All of that is there, and at most one more."""
    for _ in range(5):
        path.unlink(missing_ok=True)
        for each in path.parent.glob("spool.db-*"):
            each.unlink()
        command = [sys.executable, "-c", PUTS, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(rng.randrange(1, 200)):
                process.stdout.readline()
            process.kill()
            told = [int(line) for line in process.stdout.read().split()]
        spool = opened()
        found = numbers(spool)
        assert found == list(range(len(found)))
        assert len(found) >= (told[-1] + 1 if told else 1)
        assert spool.counts().waiting == len(found)
        spool.close()


PUTS = """
import sys
from pathlib import Path
from shardq.edge.spool import Spool
spool = Spool(Path(sys.argv[1]))
for number in range(100_000):
    spool.put([(b"id-%d" % number, b"%d:x" % number)])
    print(number, flush=True)
"""


@pytest.mark.runs_in("test-all")
def test_the_lock_belongs_to_one_and_is_free_when_its_process_ends(path: Path) -> None:
    own, other = DeliveryLock(path), DeliveryLock(path)
    assert own.holder() is None
    assert own.take()
    assert own.take()
    assert not other.take()
    assert other.holder() == os.getpid()
    own.free()
    assert other.take()
    other.free()
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    assert not own.take()
    assert own.holder() == process.pid
    process.kill()
    process.communicate()
    eventually(own.take)
    own.free()


HOLDS = """
import sys
from pathlib import Path
from shardq.edge.lock import DeliveryLock
lock = DeliveryLock(Path(sys.argv[1]))
lock.take()
print(1, flush=True)
sys.stdin.read()
"""


def test_space_is_used_again(opened: Open, path: Path) -> None:
    spool = opened()
    for _ in range(20):
        spool.put([message(each, 5000) for each in range(100)])
        spool.acked([each.seq for each in spool.after(0, 1000, 10**9).messages])
    (pages,) = spool.file.db.execute("PRAGMA page_count").fetchone()
    assert pages * 4096 < 3 * 100 * 5000
    assert sqlite3.sqlite_version_info >= (3, 35)


def test_something_is_kept_by_name(opened: Open) -> None:
    spool = opened()
    assert spool.kept("dictionary") is None
    spool.keep("dictionary", b"one")
    spool.keep("dictionary", b"two")
    assert opened().kept("dictionary") == b"two"
