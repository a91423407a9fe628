"""Files that a person names: whatever they are, the command says in one line what is wrong, and reads within bounds."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from shardq.errors import ConfigError
from shardq.files import read_file, toml, write_whole

DEEP: Final = 20_000
CONTENTS: Final[Mapping[str, bytes]] = {
    "brackets": b"a = " + b"[" * DEEP,
    "closed brackets": b"a = " + b"[" * DEEP + b"]" * DEEP,
    "inline tables": b"a = " + b"{a = " * DEEP,
    "a deep table": b"[" + b".".join([b"a"] * DEEP) + b"]\nb = 1",
    "a deep key": b".".join([b"a"] * DEEP) + b" = 1",
    "a giant number": b"a = " + b"9" * 100_000,
    "a giant hexadecimal number": b"tokens = 0x" + b"f" * 100_000,
    "a giant date": b"a = 99999-99-99T99:99:99Z",
    "not UTF-8": b"a = '\xff'",
    "a key twice": b"a = 1\na = 2",
    "NUL": b"a = '\0'",
    "only NUL": bytes(10_000),
    "UTF-16": "a = 1".encode("utf-16"),
    "a quote without an end": b'a = """' + b"x" * 1_000_000,
    "escapes": b"\x1b[31m = 1",
    "a lone surrogate": b'a = "\\ud800"',
    "queues as a number": b"queues = 1\ntokens = 1",
    "tokens of no tables": b"tokens = [1, [], 'x']",
}  # fmt: skip

PLACES: Final[Mapping[str, Callable[[Path], Path]]] = {
    "missing": lambda folder: folder / "nothing",
    "a folder": lambda folder: folder,
    "a pipe without a writer": lambda folder: _pipe(folder / "pipe"),
    "endless": lambda _: Path("/dev/zero"),
    "empty device": lambda _: Path("/dev/null"),
    "a loop": lambda folder: _loop(folder / "loop"),
    "a long name": lambda folder: folder / ("x" * 5_000),
}


def _pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def _loop(path: Path) -> Path:
    path.symlink_to(path)
    return path


@pytest.mark.parametrize("name", CONTENTS)
def test_nothing_but_an_error_comes_of_what_is_no_toml(name: str) -> None:
    try:
        toml(
            CONTENTS[name], "this"
        )  # of what is TOML each command says what is wrong with it (tests/cli/test_files.py)
    except ConfigError as error:
        assert len(str(error)) < 200  # noqa: PT017 (it need not come)


@pytest.mark.parametrize("name", PLACES)
def test_what_cannot_be_read_is_an_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the list"):
        read_file(PLACES[name](tmp_path), 1_000_000, "the list")


def finish(writing: int) -> None:
    """Write the rest of the file, and close it."""
    os.write(writing, b"= 1\n")
    os.close(writing)


def test_a_pipe_is_read_as_it_is_written() -> None:
    """As a shell's `<(command)` gives it."""
    reading, writing = os.pipe()
    os.write(writing, b"a ")
    slow = threading.Timer(0.2, finish, [writing])
    slow.start()
    assert toml(read_file(f"/dev/fd/{reading}", 100, "it"), "it") == {"a": 1}
    slow.join()
    os.close(reading)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, link = tmp_path / "page.html", tmp_path / "link.html"
    write_whole(page, "old")
    link.symlink_to(page)
    write_whole(link, "new")
    assert (page.read_text(), link.is_symlink()) == ("new", True)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            write_whole(page, "newer")
    assert page.read_text() == "new"
    assert {*tmp_path.iterdir()} == {page, link}


def test_what_is_no_plain_file_is_written_to_as_it_is() -> None:
    reading, writing = os.pipe()
    write_whole(f"/dev/fd/{writing}", "page")
    os.close(writing)
    assert os.read(reading, 100) == b"page"
    os.close(reading)
