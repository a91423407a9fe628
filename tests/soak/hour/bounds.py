"""How late, how large and how much is too much."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class Bounds:
    """What a run is judged by. Times are seconds."""

    wait: float = 60.0  # of a message that could be delivered, without the time of faults
    grace: float = 10.0  # by which an answer may come after the call's timeout
    age: float = 5.0  # of the figures that somebody polls
    growth: float = 1.1  # of what a process or server has at the end, by what it had before
    warm: float = 600.0  # after which a process has what it needs; a sixth of a run that is shorter than six of it
    memory: int = 8 * MIB  # by which a process may grow in any case
    server_memory: int = 16 * MIB  # by which each server may grow in any case: buffers and journals fill up
    descriptors: int = 16  # or threads, by which a process may grow in any case: connections to other nodes
    read_ahead: float = 30.0  # a delivery that may have been asked for this long before tells no order
    keys: int = 0  # that may be new at the end
