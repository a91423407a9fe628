"""Memory of this process, in bytes."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from pathlib import Path


def used() -> int:
    """What the process has resident now; where the system does not say, the most it ever had."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else peak()


def peak() -> int:
    """The most that the process had resident since `forget_peak`."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def forget_peak() -> None:
    """Let `peak` count from now on, where the system can."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
