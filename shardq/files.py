"""Files that a person names: each is read whole within a bound, and what is wrong with it is said in one line.

And what lies in folders that others write to, such as the system's for temporary files: it may be anybody's, so it is
looked at without following links and without waiting, and left alone if it belongs to somebody else.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import tomllib
from io import FileIO
from itertools import islice
from pathlib import Path
from typing import Any, Final

from shardq.arguments import path as checked_path
from shardq.errors import ConfigError

MIB: Final = 1024 * 1024
MAX_SHOWN: Final = 200
DRAFT: Final = ".new"
"""How the name of a file ends until it is whole."""
MAX_DOTS: Final = 1_000
"""Parts of a key. The time that tomllib takes grows with the square of them: 20,000 take half a minute."""

_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)  # Windows has neither
PATIENCE: Final = 10.0
"""Seconds that a pipe may be silent."""

_CAREFULLY: Final[int] = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"))
"""Windows has none of them."""
MAX_NAMES: Final = 10_000
"""Names of a shared folder that are looked at: others may have put any number there."""


def read_file(path: str | os.PathLike[str], most: int, what: str) -> bytes:
    """Return all bytes of a file or pipe. ConfigError if it cannot be read, or has more than *most*.

    *what* says what it is, such as "the file of tokens". A pipe into which nobody writes is an error, too.
    """
    where = f"{what} {shortened(os.fspath(checked_path(what, path)))!r}"
    try:
        # A pipe without a writer would block when it is opened, for ever.
        with FileIO(os.open(path, _FLAGS)) as file:
            found = _read(file, most, where)
    except OSError as error:
        raise ConfigError(f"{where} cannot be read: {error.strerror}") from None
    return bounded(found, most, where)


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file, over one that may be there: a reader sees the one or the other, whole. OSError.

    A file that is not plain, such as a pipe, is written to as it is.
    """
    if (named := Path(path)).exists() and not named.is_file():
        named.write_text(text, encoding="utf-8")
        return
    where = Path(os.path.realpath(path))
    draft = where.with_name(f"{where.name}{DRAFT}")
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        put_in_place(draft, where)
    finally:
        draft.unlink(missing_ok=True)


def put_in_place(draft: Path, path: Path) -> None:
    """Rename *draft*, which is whole and synced, to *path* beside it, so that a loss of power leaves it there. OSError.

    A file at *path* is replaced; a folder is not.
    """
    draft.replace(path)
    _sync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Make a folder, and those that it lies in, so that a loss of power leaves them there. OSError."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    """Have the disk keep the names that are in a folder, if it may be read, and its file system can do so."""
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows
    try:
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        return
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(opened)


def is_foreign(found: os.stat_result, folder: os.stat_result | None = None) -> bool:
    """Return whether a file belongs to another user: neither to this one nor to root, who need not ask.

    Root may use the files of the user whose *folder* they are in.
    """
    if not hasattr(os, "geteuid"):
        return False
    user = os.geteuid()
    if user == 0 and folder is not None and found.st_uid == folder.st_uid:
        return False
    return found.st_uid not in (0, user)


def open_own(path: str | os.PathLike[str], flags: int, mode: int = 0o600) -> int:
    """Open a plain file of this user's. OSError if it is a link, a pipe or such, or another user's."""
    file = os.open(path, flags | _CAREFULLY, mode)
    found = os.fstat(file)
    if stat.S_ISREG(found.st_mode) and not is_foreign(found):
        return file
    os.close(file)
    raise OSError(errno.EPERM, "it is no plain file of this user", os.fspath(path))


def touch(path: str | os.PathLike[str]) -> None:
    """Set the time of a file of this user's to now; make it if there is none. OSError."""
    file = open_own(path, os.O_WRONLY | os.O_CREAT, 0o666)
    try:
        os.utime(file)
    finally:
        os.close(file)


def own_folders(place: Path, prefix: str) -> list[Path]:
    """Return the folders of this user in a shared one whose names begin with *prefix*. OSError."""
    with os.scandir(place) as entries:
        named = [each for each in islice(entries, MAX_NAMES) if each.name.startswith(prefix)]
    return [Path(each.path) for each in named if _is_own_folder(each)]


def _is_own_folder(entry: os.DirEntry[str]) -> bool:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def shortened(path: str) -> str:
    """Return a path for an error: of a long one the end."""
    return path if len(path) <= MAX_SHOWN else f"…{path[-MAX_SHOWN:]}"


def bounded(found: bytes, most: int, where: str) -> bytes:
    """Return the bytes that were *found*. ConfigError if they are more than *most*."""
    if len(found) > most:
        raise ConfigError(f"{where} has more than {most:,} bytes")
    return found


def toml(raw: bytes, where: str) -> dict[str, Any]:
    """Return the table that TOML in UTF-8 stands for. ConfigError if it is none, or is nested too deeply."""
    try:
        text = raw.decode("utf-8-sig")
        if any(line.partition("=")[0].count(".") > MAX_DOTS for line in text.splitlines()):
            raise ConfigError(f"{where} has a key of more than {MAX_DOTS:,} parts")
        return tomllib.loads(text)
    except ConfigError:
        raise
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where} is not TOML, which is UTF-8: byte {error.start:,} is none") from None
    except RecursionError:
        raise ConfigError(f"{where} is not TOML that can be read: it is nested too deeply") from None
    except ValueError as error:  # also of a number with thousands of digits
        raise ConfigError(f"{where} is not TOML: {error}") from None


def _read(file: FileIO, most: int, where: str) -> bytes:
    found = bytearray()
    while len(found) <= most:
        part = file.read(min(most + 1 - len(found), MIB))
        if part:
            found += part
        elif part is not None:
            break
        elif not select.select([file], [], [], PATIENCE)[0]:
            raise ConfigError(f"{where} is a pipe into which nothing was written for {PATIENCE:g} s")
    if not found and not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        raise ConfigError(f"{where} is a pipe or device with nothing in it")
    return bytes(found)
