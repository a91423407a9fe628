"""What the edge keeps from other users of the machine, and out of texts that people see."""

from __future__ import annotations

import fcntl
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardq.edge import Edge
from shardq.edge.file import PASSING_SUFFIXES, SIDES
from shardq.edge.lock import DeliveryLock
from shardq.edge.settings import EdgeSettings
from shardq.edge.spool import Spool
from shardq.errors import MessageRefused, SpoolDamaged
from tests.edge.sink import Sink, running
from tests.others import STRANGER, belongs_to_another

SECRET = "f00-secret-token"


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()}


def test_all_files_of_a_spool_are_for_their_owner_only(tmp_path: Path) -> None:
    with running(Sink()) as sink, Edge(sink.address, spool=tmp_path / "s.db") as edge:
        edge.send(b"x", queue="jobs", shard_key="t").outcome()
        assert {each.name for each in tmp_path.iterdir()} == {"s.db", "s.db-wal", "s.db-shm", "s.db.lock"}
        assert modes(tmp_path) == {0o600}
    assert modes(tmp_path) == {0o600}


def test_a_file_that_others_could_open_is_narrowed_and_that_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.db"
    Spool(path).close()
    path.chmod(0o644)
    for _ in range(2):
        Spool(path).close()
    assert modes(tmp_path) == {0o600}
    told = [each.getMessage() for each in caplog.records]
    assert told == [f"edge: others could open {path} (mode 644): now only its owner can"]


@pytest.mark.parametrize("kind", ["symbolic link", "hard link", "another file", "folder"])
def test_the_lock_follows_no_link_and_changes_no_other_file(tmp_path: Path, kind: str) -> None:
    path, theirs = tmp_path / "s.db.lock", tmp_path / "theirs"
    theirs.write_text("precious")
    match kind:
        case "symbolic link":
            path.symlink_to(theirs)
        case "hard link":
            path.hardlink_to(theirs)
        case "another file":
            path.write_text("precious")
        case "folder":
            path.mkdir()
    lock = DeliveryLock(tmp_path / "s.db")
    for ask in (lock.take, lock.holder):
        with pytest.raises(SpoolDamaged, match="cannot be the lock of a spool"):
            ask()
    assert theirs.read_text() == "precious"
    assert kind != "another file" or path.read_text() == "precious"


@pytest.mark.parametrize("suffix", [*SIDES, *PASSING_SUFFIXES])
@pytest.mark.parametrize("kind", ["pipe", "link", "another user's"])
def test_files_that_others_have_put_there_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, kind: str
) -> None:
    path, theirs = tmp_path / f"s.db{suffix}", tmp_path / "theirs"
    theirs.touch()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link" and suffix:
        path.symlink_to(theirs)
    else:
        path.touch()
        belongs_to_another(path, monkeypatch)
    with pytest.raises(SpoolDamaged, match="folder of your own"):
        Spool(tmp_path / "s.db")
    assert theirs.read_bytes() == b""


def test_a_lock_of_another_user_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s.db.lock").touch()
    belongs_to_another(tmp_path / "s.db.lock", monkeypatch)
    with pytest.raises(SpoolDamaged, match="cannot be the lock of a spool"):
        DeliveryLock(tmp_path / "s.db").take()


def test_root_may_look_at_the_spool_of_a_user(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        return  # nobody else can give files away
    Spool(tmp_path / "s.db").close()
    for each in (tmp_path, *tmp_path.iterdir()):
        os.chown(each, STRANGER, -1)
    Spool(tmp_path / "s.db").close()


def test_a_folder_that_another_process_has_locked_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardq.edge.file.LOCK_SECONDS", 0.1)
    held = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        with pytest.raises(SpoolDamaged, match="locked its folder"):
            Spool(tmp_path / "s.db")
    finally:
        os.close(held)
    Spool(tmp_path / "s.db").close()


def test_a_link_to_a_spool_is_the_same_spool(tmp_path: Path) -> None:
    folder = tmp_path / "real"
    folder.mkdir()
    (tmp_path / "link.db").symlink_to(folder / "s.db")
    one = Spool(tmp_path / "link.db")
    one.put([(b"a", b"x")])
    other = Spool(folder / "s.db")
    assert other.counts().waiting == 1
    assert one.path == other.path
    assert [each.name for each in tmp_path.iterdir() if not each.is_dir()] == ["link.db"]
    one.close()
    other.close()


def test_secrets_are_in_no_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = EdgeSettings(
        gateway="localhost:1",
        spool="s.db",
        token=SECRET,
        root_certificates=b"roots!",
        certificate=b"mine!",
        key=b"key!",
    )
    assert not any(secret in repr(settings) for secret in (SECRET, "roots!", "mine!", "key!"))
    caplog.set_level(logging.DEBUG)
    refusing = Sink(act=lambda request, number: "refuse INVALID")
    with running(refusing) as sink, Edge(sink.address, spool=tmp_path / "s.db", token=SECRET) as edge:
        edge.send(b"payload!", queue="jobs", shard_key="t")
        with pytest.raises(MessageRefused, match="1 of INVALID") as told:
            edge.flush()
        assert SECRET not in f"{edge.settings!r}{told.getrepr(style='short')}{edge.status()!r}"
    assert SECRET not in caplog.text
    assert "payload!" not in caplog.text
