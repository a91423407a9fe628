"""What a server has spent so far, as seen from outside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.grind import dumped

Probe = Callable[[], Mapping[str, float]]
"""What has been spent so far, of one or several things."""
INSTRUCTIONS: Final = "instructions"
SCRIPTS: Final = ("evalsha", "evalsha_ro", "fcall", "fcall_ro")


def cpu_of(pid: int) -> Probe:
    """The µs of CPU that a process of this machine has used: the kernel's clock of it, so the process is not asked."""
    clock = (~pid << 3) | 2  # as clock_getcpuclockid(3) makes it
    return lambda: {"cpu": time.clock_gettime_ns(clock) / 1000}


def commands_of(server: Any) -> Probe:
    """The µs that a server has spent in scripts, and how often it ran each other command."""

    def probe() -> Mapping[str, float]:
        stats = server.info("commandstats")
        found = {name.removeprefix("cmdstat_"): each for name, each in stats.items() if name != "cmdstat_info"}
        scripts = [found.pop(name)["usec"] for name in SCRIPTS if name in found]
        return {"scripts": sum(scripts), **{name: each["calls"] for name, each in found.items()}}

    return probe


def instructions_of(pid: int, folder: Path) -> Probe:
    """How many instructions a server has run that callgrind counts, which writes to *folder*."""
    found = 0

    def probe() -> Mapping[str, float]:
        nonlocal found
        found += dumped(pid, folder)
        return {INSTRUCTIONS: found}

    return probe


def memory_of(server: Any) -> Probe:
    """The bytes that a server has allocated."""
    return lambda: {"bytes": float(server.info("memory")["used_memory"])}
