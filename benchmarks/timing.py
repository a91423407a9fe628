"""timing: the timing wheel beside asyncio's timers and a heap: the CPU of a request; and what held leases cost.

Contenders run in rounds, each in a process of its own.
"""

from __future__ import annotations

from benchmarks.report import Table
from benchmarks.settings import Place
from benchmarks.timers.leases import leases
from benchmarks.timers.replay import replay
from benchmarks.timers.size import Size


def run(place: Place) -> list[Table]:
    """Both tables; 200 requests for each message of the settings."""
    chosen = place.settings
    size = Size(requests=200 * chosen.messages, rounds=min(chosen.rounds, Size().rounds))
    return [replay(size), leases(size)]
