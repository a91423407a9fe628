"""The folder of a gateway's private socket: nothing of gateways that were killed stays."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from shardq.gateway.sockets import PREFIX, YOUNG, private_folder

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
        made = NOW - (YOUNG / 2 if name == "young" else 2 * YOUNG)
        os.utime(folder, (made, made))
    Path("other").mkdir()
    os.utime("other", (NOW - 2 * YOUNG, NOW - 2 * YOUNG))

    own = private_folder(NOW)
    left = {path.name for path in place.iterdir()} - {own.name}
    assert left == {f"{PREFIX}listens", f"{PREFIX}young", "other"}
    assert (own.stat().st_mode & 0o777, own.name.startswith(PREFIX)) == (0o700, True)
    for each in held:
        each.close()
