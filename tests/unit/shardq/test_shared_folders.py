"""What lies in a folder that others write to is nobody's: no link is followed, and nothing waited for."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from shardq.files import MAX_NAMES, open_own, own_folders, touch
from tests.others import belongs_to_another


@pytest.mark.parametrize("kind", ["link", "link to nothing", "pipe", "folder", "socket", "another user's"])
def test_what_is_no_plain_file_of_this_user_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path, theirs = tmp_path / "f", tmp_path / "theirs"
    theirs.write_text("precious")
    os.utime(theirs, (1, 1))
    match kind:
        case "link":
            path.symlink_to(theirs)
        case "link to nothing":
            path.symlink_to(tmp_path / "nothing")
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "socket":
            monkeypatch.chdir(tmp_path)
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind("f")
        case _:
            path.write_text("precious")
            belongs_to_another(path, monkeypatch)
    opened = threading.Thread(target=_refused, args=(path,), daemon=True)
    opened.start()
    opened.join(30)
    assert not opened.is_alive(), "it waits"
    assert (theirs.read_text(), theirs.stat().st_mtime) == ("precious", 1)
    assert not (tmp_path / "nothing").exists()


def _refused(path: Path) -> None:
    for use in (touch, lambda each: open_own(each, os.O_RDWR | os.O_CREAT)):
        with pytest.raises(OSError):  # noqa: PT011 - the system's own of a link, a folder or a pipe without a reader
            use(path)


def test_a_file_is_made_or_its_time_is_set(tmp_path: Path) -> None:
    touch(tmp_path / "f")
    os.utime(tmp_path / "f", (1, 1))
    touch(tmp_path / "f")
    assert (tmp_path / "f").stat().st_mtime > 1


def test_only_own_folders_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("x-1", "x-2", "x-theirs", "y"):
        (tmp_path / name).mkdir()
    (tmp_path / "x-file").touch()
    (tmp_path / "x-link").symlink_to(tmp_path / "y")
    if os.geteuid() == 0:
        belongs_to_another(tmp_path / "x-theirs", monkeypatch)
    else:
        (tmp_path / "x-theirs").rmdir()
    assert {each.name for each in own_folders(tmp_path, "x-")} == {"x-1", "x-2"}


def test_of_a_folder_full_of_names_some_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardq.files.MAX_NAMES", 10)
    for number in range(30):
        (tmp_path / f"x-{number}").mkdir()
    assert MAX_NAMES > 1000
    assert len(own_folders(tmp_path, "x-")) == 10
