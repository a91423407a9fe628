"""One of the processes that share a spool delivers: the one that holds the lock on the file beside it."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path
from typing import Final

from shardq.errors import SpoolDamaged
from shardq.files import is_foreign
from shardq.platforms import posix

with posix("the spool of an edge producer"):
    import fcntl

_CONTENT: Final = re.compile(rb"(\d{1,10} *\n)?")


class DeliveryLock:
    """An advisory lock. The kernel frees it with the process, however that ends."""

    def __init__(self, spool: Path) -> None:
        self._path = spool.with_name(spool.name + ".lock")
        self._file: int | None = None

    def take(self) -> bool:
        """Take the lock if nobody has it. Return whether this object has it now. SpoolDamaged if its file is none."""
        if self._file is not None:
            return True
        file = self._opened(os.O_CREAT)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        with contextlib.suppress(OSError):  # the disk is full: then only the number is missing
            os.pwrite(file, f"{os.getpid():<10}\n".encode(), 0)
        self._file = file
        return True

    def holder(self) -> int | None:
        """Return the process that delivers; None if none does. SpoolDamaged if the lock's file is none."""
        try:
            file = self._opened(0)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.pread(file, 20, 0).split()
            return int(text[0]) if text else None
        else:
            return None
        finally:
            os.close(file)

    def free(self) -> None:
        """Give the lock up."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _opened(self, more: int) -> int:
        """Open the file, unless it is something else: a link, or a file with another content."""
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | more, 0o600)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._foreign(error.strerror or "") from None
        found = os.fstat(file)
        is_plain = (
            stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and not is_foreign(found, self._path.parent.stat())
        )
        if is_plain and _CONTENT.fullmatch(os.pread(file, 100, 0)):
            return file
        os.close(file)
        raise self._foreign("it is another file")

    def _foreign(self, why: str) -> SpoolDamaged:
        return SpoolDamaged(f"{str(self._path)!r} cannot be the lock of a spool ({why}): move it away")
