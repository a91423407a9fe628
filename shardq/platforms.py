"""Things that not every system has: processes that fork, and modules of POSIX.

docs/platforms.md says what runs where. A part that cannot do without what is missing says so in one line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from shardq.errors import NotHere

CONTROL_GROUPS: Final = Path("/sys/fs/cgroup")
"""Where Linux says what a container or a service may take."""
MAX_GROUPS: Final = 100
"""Control groups of a process that are looked at: it has one for each controller."""
NO_LIMIT: Final = 1 << 60
"""Version 1 of control groups writes "no limit" as a number near the largest."""


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
    """Return the memory of a process in bytes, by default this one's; 0 where the system does not say."""
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


def memory_limit(own: Path = Path("/proc/self/cgroup"), root: Path = CONTROL_GROUPS) -> int | None:
    """Return how much memory in bytes the container or service of this process may take; None where nothing limits it.

    The least limit on the way up from its own control group counts: of version 2, or of version 1's memory controller
    (https://docs.kernel.org/admin-guide/cgroup-v2.html).
    """
    try:
        lines = own.read_text().splitlines()
    except (OSError, ValueError):  # no Linux
        return None
    limits: list[int] = []
    for line in lines[:MAX_GROUPS]:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and "memory" not in controllers.split(","):
            continue
        top, name = (root / "memory", "memory.limit_in_bytes") if controllers else (root, "memory.max")
        group = top / path.lstrip("/")
        # Inside of a container the path may be that of the host, which is not there: then the top is its own.
        own_and_above = [each for each in (group, *group.parents) if each.is_relative_to(top)]
        limits += [limit for each in own_and_above if (limit := _limit(each / name)) is not None]
    return min(limits, default=None)


def _limit(file: Path) -> int | None:
    try:
        found = int(file.read_text())
    except (OSError, ValueError):  # none there; "max"
        return None
    return found if 0 < found < NO_LIMIT else None
