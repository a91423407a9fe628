"""Schedules: calls that are written at the times of a timetable, each time (a slot) once.

Begin with `attend`, which each worker does once a minute; `slots` says which slots are to be written, `write` writes
them, and `stored` has what users do with the schedules that they stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardq.later import modules_of

if TYPE_CHECKING:
    from shardq.ops.schedules import attend, stored

__all__ = ["attend", "stored"]

__getattr__ = modules_of(__name__, __all__)
"""Few queues have any."""
