"""Schedules: calls that are written at the times of a timetable, each time (a slot) once.

Begin with `attend`, which each worker does once a minute; `slots` says which slots are to be written, `write` writes
them, and `stored` has what users do with the schedules that they stored.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardq.ops.schedules import attend, stored

__all__ = ["attend", "stored"]


def __getattr__(name: str) -> ModuleType:
    """Import a module when it is first asked for: few queues have any."""
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
