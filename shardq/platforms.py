"""What not every system has: processes that fork, and modules of POSIX.

docs/platforms.md says what runs where. A part that cannot do without what is missing says so in one line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shardq.errors import NotHere


def after_fork(call: Callable[[], object]) -> None:
    """Call *call* in each process that this one forks from now on. Windows forks none."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)


def need_fork(what: str) -> None:
    """Raise NotHere, which says that *what* needs another system, if this one cannot fork processes."""
    if not hasattr(os, "fork"):
        raise NotHere(f"{what}: this needs Linux, macOS or another system that forks processes")


@contextmanager
def posix(what: str) -> Iterator[None]:
    """Let what is imported in this context be modules of POSIX that *what* needs. NotHere if this system has none."""
    try:
        yield
    except ImportError as error:
        raise NotHere(f"{what} needs Linux, macOS or another POSIX system: there is no {error.name} here") from None


def resident_memory(pid: int | None = None) -> int:
    """Return the memory of a process in bytes, of this one by default; 0 where the system does not say."""
    try:
        with open(f"/proc/{pid or 'self'}/statm", "rb") as file:  # noqa: PTH123 (each 5 s, and a Path costs more)
            return int(file.read(256).split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        pass
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss if pid is None else 0  # at most so far
    return most if sys.platform == "darwin" else most * 1024
