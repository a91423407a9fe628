"""One of the processes that share a spool delivers: the one that holds the lock on the file beside it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class DeliveryLock:
    """An advisory lock. The kernel frees it with the process, however that ends."""

    def __init__(self, spool: Path) -> None:
        self._path = spool.with_name(spool.name + ".lock")
        self._file: int | None = None

    def take(self) -> bool:
        """Take the lock if nobody has it. Return whether this object has it now."""
        if self._file is not None:
            return True
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
        self._file = file
        return True

    def holder(self) -> int | None:
        """Return the process that delivers; None if none does."""
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.read(file, 20).split()
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
