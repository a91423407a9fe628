"""A disk that is full, by the spool or by another program: what was accepted goes out once, and the file shrinks."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from shardq.datasink.messages import Request
from shardq.edge import Edge, EdgeMessage
from shardq.edge.file import LOG_BYTES
from shardq.edge.schema import PAGE_BYTES
from shardq.edge.spool import Spool, SpoolHold
from shardq.errors import SpoolFull
from tests.edge.sink import Sink, running
from tests.parts import LINUX, ROOT
from tests.waiting import eventually

pytestmark = [pytest.mark.timeout(180), pytest.mark.runs_in("test-all"), ROOT.needed, LINUX.needed]
Disk = Callable[[int], Path]
MIB = 1024 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Mounts a file system of so many MiB."""
    mounted: list[Path] = []

    def mount(size: int) -> Path:
        folder = tmp_path / f"disk-{size}"
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}m", "tmpfs", str(folder)], check=True)
        mounted.append(folder)
        return folder

    yield mount
    for each in mounted:
        subprocess.run(["umount", "-l", str(each)], check=True)


def fill(folder: Path) -> Path:
    """Take all that is left of a disk, as another program does."""
    path = folder / "of another program"
    with path.open("ab", buffering=0) as file:
        for size in (MIB, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    assert os.statvfs(folder).f_bavail == 0
    return path


def put_until_full(edge: Edge, size: int, at_once: int = 1) -> list[bytes]:
    """Send messages until the spool takes no more; their payloads."""
    sent: list[bytes] = []
    with pytest.raises(SpoolFull):  # noqa: PT012 - how many fit is the disk's matter
        while True:
            some = [b"%d:" % (len(sent) + number) + os.urandom(size) for number in range(at_once)]
            edge.send_many(EdgeMessage(each, "t", queue="jobs") for each in some)
            sent += some
    return sent


@pytest.mark.parametrize("size", [16, 64])
@pytest.mark.parametrize("by", ["the spool", "another program", "both"])
def test_what_was_accepted_goes_out_once_when_the_gateway_is_back(
    disk: Disk, tmp_path: Path, size: int, by: str
) -> None:
    folder, address = disk(size), f"unix:{tmp_path}/sock"
    with Edge(address, spool=folder / "s.db") as edge:
        sent = [b"%d" % number + bytes(2000) for number in range(1000)]
        if by == "another program":
            edge.send_many(EdgeMessage(each, "t", queue="jobs") for each in sent)
            fill(folder)
        else:
            sent = put_until_full(edge, 2000)
            assert len(sent) > 1000
        if by == "both":
            fill(folder)
    drains(address, folder, sent)


@pytest.mark.parametrize("at_once", [1, 7, 200])
def test_it_drains_however_large_the_messages_and_the_batches_were(disk: Disk, tmp_path: Path, at_once: int) -> None:
    folder, address = disk(32), f"unix:{tmp_path}/sock"
    with Edge(address, spool=folder / "s.db") as edge:
        sent = put_until_full(edge, 20_000, at_once)
        fill(folder)
        sent += put_until_full(edge, 100)  # into what is free within the file
        drains(address, folder, sent, edge)


def drains(address: str, folder: Path, sent: list[bytes], edge: Edge | None = None) -> None:
    """All that was sent arrives once through a gateway at *address*, and the disk gets room again."""
    file = folder / "s.db"
    before = file.stat().st_size
    with running(Sink(), address) as sink:
        edge = edge or Edge(address, spool=file)
        try:
            edge.flush(40)
            counts = edge.status().spool
            assert Counter(sink.stored.values()) == Counter(sent)
            assert len(sink.requests) < 1.2 * len(sent)
            assert sink.doubled == []
            assert (counts.waiting, counts.acked, counts.refused) == (0, len(sent), 0)
            eventually(lambda: file.stat().st_size < min(before, 2 * MIB), 30)
            edge.send(b"there is room again", queue="jobs", shard_key="t")
            edge.flush(60)
        finally:
            edge.close()


def spooled(folder: Path, count: int, size: int) -> Spool:
    """A spool with messages on a disk that is full."""
    spool = Spool(folder / "s.db")
    for start in range(0, count, 1000):
        spool.put([request(b"%d" % number, size) for number in range(start, min(count, start + 1000))])
    return filled(spool)


def filled(spool: Spool) -> Spool:
    """The spool, opened anew after all that was left of the disk was taken: its log is as long as it may be."""
    spool.close()
    fill(spool.path.parent)
    return Spool(spool.path)


def request(name: bytes, size: int) -> tuple[bytes, bytes]:
    found = Request(version=1, message_id=name, queue="jobs", shard_key=b"t", plain_message=bytes(size))
    return name, bytes(found.SerializeToString())


def hold(spool: Spool, seqs: Iterable[int]) -> None:
    """Hold messages at two places in turns, each with a long text."""
    spool.hold([SpoolHold(seq, f"p{seq % 2}", 1, "NO_QUEUE", "no" * 250) for seq in seqs])


def test_very_many_held_messages_go_out_on_a_full_disk(disk: Disk, tmp_path: Path) -> None:
    """What is noted of each takes more than the log has room for, and lies between notes that stay."""
    folder, address = disk(32), f"unix:{tmp_path}/sock"
    spool = spooled(folder, 15_000, 100)
    (folder / "of another program").unlink()
    hold(spool, range(1, 15_001))
    filled(spool).close()
    with running(Sink(), address) as sink, Edge(address, spool=folder / "s.db") as edge:
        edge.flush(60)
        assert len(sink.stored) == edge.status().spool.acked == 15_000


def test_a_queue_that_is_missing_while_the_disk_is_full_stops_nothing_for_ever(disk: Disk, tmp_path: Path) -> None:
    """There is no room to note why they wait. They do, and the log stays free."""
    folder, address = disk(16), f"unix:{tmp_path}/sock"
    with Edge(address, spool=folder / "s.db") as edge:
        sent = put_until_full(edge, 300, 50)
        fill(folder)
        with running(Sink(act=lambda request, number: "refuse NO_QUEUE"), address) as sink:
            eventually(lambda: len(sink.requests) > 5000, 120)
            sink.act = lambda request, number: "ack"
            edge.flush(60)
            assert Counter(sink.stored.values()) == Counter(sent)


def test_very_many_messages_are_refused_and_sent_again_on_a_full_disk(disk: Disk) -> None:
    spool = spooled(disk(32), 500, 20_000)
    spool.refuse([(seq, "INVALID", "bad") for seq in range(1, 501)])
    assert (spool.counts().waiting, spool.counts().refused) == (0, 500)
    assert spool.refusals.resend(reason="INVALID") == 500
    assert (spool.counts().waiting, spool.counts().refused) == (500, 0)
    spool.close()


def test_very_many_messages_that_are_held_too_long_are_refused_on_a_full_disk(disk: Disk) -> None:
    folder = disk(32)
    spool = spooled(folder, 500, 20_000)
    (folder / "of another program").unlink()
    hold(spool, range(1, 501))
    spool = filled(spool)
    while spool.expire(2.0**60):
        pass
    assert (spool.counts().waiting, spool.counts().held, spool.counts().refused) == (0, 0, 500)
    spool.close()


def test_very_many_acks_are_noted_on_a_full_disk(disk: Disk, tmp_path: Path) -> None:
    """They lie between messages that stay, so each changes a page."""
    folder, address = disk(64), f"unix:{tmp_path}/sock"
    spool = spooled(folder, 40_000, 300)
    acked = {each.id: each.seq for each in spool.after(0, 10**6, 2**40).messages if each.seq % 2}
    spool.close()
    with Edge(address, spool=folder / "s.db") as edge:
        edge._delivering._acked.update(acked)  # as many as come while another process has the file for long
        with running(Sink(), address) as sink:
            edge.flush(60)
            assert len(sink.stored) == 20_000
            assert edge.status().spool.acked == 40_000


def test_a_full_disk_gets_room_back_though_messages_are_held_at_the_end_of_the_file(disk: Disk) -> None:
    spool = spooled(disk(32), 4000, 4000)
    for start in range(1, 3000, 100):
        spool.acked(range(start, start + 100))
    before = spool.path.stat().st_size
    while spool.shrink():
        pass
    assert spool.path.stat().st_size < before / 2
    assert spool.counts().waiting == 1000
    spool.close()


def test_a_disk_that_becomes_full_while_a_damaged_file_is_copied_keeps_nothing_of_the_copy(disk: Disk) -> None:
    folder = disk(24)
    spool = spooled(folder, 2000, 4000)
    spool.close()
    file, before = folder / "s.db", {each.name for each in folder.iterdir()}
    with file.open("r+b") as content:
        content.seek(file.stat().st_size // 2 // PAGE_BYTES * PAGE_BYTES)
        content.write(b"\xff" * 64)
    with (folder / "of another program").open("r+b") as other:
        other.truncate(other.seek(0, os.SEEK_END) - 3 * MIB)
    spool = Spool(file)
    with pytest.raises(SpoolFull, match="cannot be copied yet"):
        spool.check()
    assert {each.name for each in folder.iterdir()} - before <= {"s.db-wal", "s.db-shm"}
    (folder / "of another program").unlink()
    spool.check()
    assert 1950 < spool.counts().waiting < 2000
    spool.close()


def test_a_disk_without_room_for_the_log_takes_nothing_and_says_so(disk: Disk) -> None:
    folder = disk(3)
    spool = Spool(folder / "s.db")
    with pytest.raises(SpoolFull, match=f"needs {LOG_BYTES:,} bytes for its log"):
        spool.put([(b"id", b"x")])
    assert spool.counts().waiting == 0
    spool.close()


def test_what_is_refused_on_a_full_disk_is_kept_and_held_messages_stay(disk: Disk, tmp_path: Path) -> None:
    folder, address = disk(16), f"unix:{tmp_path}/sock"
    with Edge(address, spool=folder / "s.db") as edge:
        sent = put_until_full(edge, 1000)
        fill(folder)
        reasons = ("refuse INVALID", "refuse NO_QUEUE", "ack", "ack", "ack")
        # Of one message always the same, also when it comes twice: no gateway refuses what it has stored.
        with running(Sink(act=lambda request, number: reasons[request.message_id[-1] % 5]), address) as sink:
            eventually(lambda: edge.status().spool.waiting < len(sent) / 4, 120)
            sink.act = lambda request, number: "ack"
            eventually(lambda: edge.status().spool.waiting == 0, 120)
            counts = edge.status().spool
        assert counts.acked + counts.refused == len(sent)
        assert len(sink.stored) == counts.acked
