"""CPU seconds and peak memory of other processes, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on; [] when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def cpu_of(pid: int, *, children: bool = True) -> float:
    """Seconds of CPU of a process, and of its children that ended."""
    fields = _stat(pid)
    return sum(map(int, fields[11 : 15 if children else 13])) / os.sysconf("SC_CLK_TCK")


def below(pid: int) -> list[int]:
    """All processes below *pid*."""
    parents = {
        int(each.name): fields
        for each in Path("/proc").iterdir()
        if each.name.isdigit() and (fields := _stat(int(each.name)))
    }
    found, new = [], [pid]
    while new:
        new = [child for child, fields in parents.items() if int(fields[1]) in new]
        found += new
    return found


def resident() -> int:
    """Bytes of memory that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def forget_peaks(pids: Iterable[int]) -> None:
    """Reset the peaks, so that `peak` counts from now on."""
    for pid in pids:
        try:
            Path(f"/proc/{pid}/clear_refs").write_text("5")
        except OSError:  # it is gone, or the kernel does not do it: then the peak is that of its life
            continue


def peak(pids: Iterable[int]) -> int:
    """Bytes of memory that each process held at most, summed; of those that are still there."""
    return sum(map(_peak, pids))


def _peak(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in text.splitlines() if line.startswith("VmHWM:")), 0)
