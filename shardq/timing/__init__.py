"""Time: a hierarchical timing wheel, the timers that move it, and the purgatory on top.

`wheel` explains itself with a worked example; `entry`, `buckets` and `linked` are its parts; `timer` and `loop_timer`
let a thread or an event loop move it; `purgatory` holds operations that wait for a condition or a timeout. No I/O.
"""

from __future__ import annotations

from shardq.timing.buckets import Bucket, DictBucket
from shardq.timing.entry import Callback, Entry
from shardq.timing.linked import LinkedBucket
from shardq.timing.loop_timer import LoopTimer
from shardq.timing.purgatory import Operation, Purgatory
from shardq.timing.timer import ThreadTimer, Timer
from shardq.timing.wheel import TimingWheel

__all__ = [
    "Bucket",
    "Callback",
    "DictBucket",
    "Entry",
    "LinkedBucket",
    "LoopTimer",
    "Operation",
    "Purgatory",
    "ThreadTimer",
    "Timer",
    "TimingWheel",
]
