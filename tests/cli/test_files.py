"""Files that a command is told to read: whatever they are, one line says what is wrong, and reading has bounds."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.cli.conftest import Command
from tests.hostile.test_files import CONTENTS, PLACES

PRODUCER: Final = ("-t", "t", "--gateway", "127.0.0.1:1", "--spool", "SPOOL", "--wait", "0")
COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "apply": ("apply", "FILE", "--dry-run"),
    "gateway": ("serve", "gateway", "--listen", "127.0.0.1:0", "--tokens", "FILE"),
    "names": ("assign", "q", "--names", "FILE", "--yes"),
    "tls": ("serve", "gateway", "--listen", "127.0.0.1:0", "--insecure", "--tls-cert", "FILE", "--tls-key", "FILE"),
    "scaler": ("serve", "scaler", "--listen", "127.0.0.1:0", "--tls-cert", "FILE", "--tls-key", "FILE"),
    "token": ("edge", "send", "q", "x", *PRODUCER, "--token-file", "FILE"),
    "ca": ("edge", "send", "q", "x", *PRODUCER, "--ca", "FILE"),
    "each file": ("edge", "send", "q", *PRODUCER, "--each-file", "FILE"),
}
MAX_MEMORY: Final = 2**30
"""What a command may have: /dev/zero would fill it in a second."""


def words_of(command: str, file: Path, folder: Path) -> list[str]:
    """The words of a command that is told to read *file*."""
    places = {"FILE": str(file), "SPOOL": str(folder / "spool")}
    return [places.get(each, each) for each in COMMANDS[command]]


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("command", ["apply", "gateway"])
@pytest.mark.parametrize("name", CONTENTS)
def test_what_is_no_toml_is_said_in_one_line(cli: Command, command: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / "file.toml"
    file.write_bytes(CONTENTS[name])
    told = cli(*words_of(command, file, tmp_path))
    assert (told.code, told.out, told.err.count("\n")) == (2, "", 1), told.err[-500:]
    assert "\x1b" not in told.err


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", PLACES)
def test_what_cannot_be_read_is_said_in_one_line(cli: Command, command: str, name: str, tmp_path: Path) -> None:
    told = cli(*words_of(command, PLACES[name](tmp_path), tmp_path))
    lines = [each for each in told.err.splitlines() if "the gateway 127.0.0.1:1" not in each]
    assert (told.code, told.out, len(lines)) == (2, "", 1), told.err[-500:]


@pytest.mark.runs_in("test-all")
def test_an_endless_file_takes_no_memory(cli: Command, tmp_path: Path) -> None:
    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))

    words = words_of("apply", Path("/dev/zero"), tmp_path)
    with cli.start(*words, stderr=subprocess.PIPE, preexec_fn=bounded) as process:
        _, told = process.communicate(timeout=100)
    assert (process.returncode, told.count(b"\n")) == (2, 1), told[-500:]
