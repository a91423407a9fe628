"""Time: a hierarchical timing wheel, the timers that move it, and the purgatory on top.

`wheel` explains the algorithm with a worked example; `entry`, `buckets` and `move` are its parts. `timer` and
`loop_timer` move its clock, from a thread or an event loop. `purgatory` holds operations that wait for a condition or a
timeout. Nothing here does I/O.
"""

from __future__ import annotations

from shardq.timing.buckets import Bucket
from shardq.timing.entry import Callback, Entry
from shardq.timing.loop_timer import LoopTimer
from shardq.timing.purgatory import Operation, Purgatory
from shardq.timing.timer import ThreadTimer, Timer
from shardq.timing.wheel import TimingWheel

__all__ = [
    "Bucket",
    "Callback",
    "Entry",
    "LoopTimer",
    "Operation",
    "Purgatory",
    "ThreadTimer",
    "Timer",
    "TimingWheel",
]
