"""The folder of a gateway's private socket: nothing of gateways that were killed stays."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardq.gateway.sockets import PREFIX, YOUNG_SECONDS, private_folder
from shardq.sockets import on_path
from tests.others import belongs_to_another

NOW = 2_000_000_000.0


def test_folders_of_gateways_that_were_killed_are_removed(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether one had begun to listen or not; but not one that listens, or was made just now, or is somebody else's."""
    place = tmp_path_factory.mktemp("t")  # the path of a socket may have 107 bytes
    monkeypatch.setattr("tempfile.tempdir", str(place))
    monkeypatch.chdir(place)
    held = []
    for name in ("listens", "refuses", "never", "young"):
        folder = Path(f"{PREFIX}{name}")
        folder.mkdir()
        if name in ("listens", "refuses"):
            held.append(socket.socket(socket.AF_UNIX))
            held[-1].bind(str(folder / "s"))
        if name == "listens":
            held[-1].listen()
        elif name == "refuses":
            held[-1].close()
        made = NOW - (YOUNG_SECONDS / 2 if name == "young" else 2 * YOUNG_SECONDS)
        os.utime(folder, (made, made))
    Path("other").mkdir()
    os.utime("other", (NOW - 2 * YOUNG_SECONDS, NOW - 2 * YOUNG_SECONDS))

    own = private_folder(NOW)
    left = {path.name for path in place.iterdir()} - {own.name}
    assert left == {f"{PREFIX}listens", f"{PREFIX}young", "other"}
    assert (own.stat().st_mode & 0o777, own.name.startswith(PREFIX)) == (0o700, True)
    for each in held:
        each.close()


@contextlib.contextmanager
def busy(path: str) -> Iterator[None]:
    """While a socket listens on *path* whose queue is full: who connects waits."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(path)
        listener.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
            waiting.setblocking(False)
            waiting.connect_ex(path)
        yield


def within(seconds: float, work: threading.Thread) -> bool:
    work.daemon = True
    work.start()
    work.join(seconds)
    return not work.is_alive()


def test_a_folder_whose_socket_lets_others_wait_keeps_nobody_from_starting(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may write to the system's folder for temporary files can put one there."""
    place = tmp_path_factory.mktemp("t")
    monkeypatch.setattr("tempfile.tempdir", str(place))
    monkeypatch.chdir(place)
    Path(f"{PREFIX}own").mkdir()
    Path(f"{PREFIX}link").symlink_to(place / f"{PREFIX}own")
    with busy(f"{PREFIX}own/s"):
        os.utime(f"{PREFIX}own", (1, 1))
        assert within(30, threading.Thread(target=private_folder, args=(NOW,)))
        assert Path(f"{PREFIX}own").exists()


def test_a_path_on_which_somebody_lets_others_wait_is_in_use(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("t"))
    errors = list[OSError]()

    def listen() -> None:
        try:
            on_path(Path("s"))
        except OSError as error:
            errors.append(error)

    with busy("s"):
        assert within(30, threading.Thread(target=listen))
    assert "in use" in str(errors[0])


def test_a_socket_of_another_user_stays(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("t"))
    left = socket.socket(socket.AF_UNIX)
    left.bind("s")
    left.close()
    belongs_to_another(Path("s"), monkeypatch)
    with pytest.raises(OSError, match="in use"):
        on_path(Path("s"))
