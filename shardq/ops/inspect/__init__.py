"""Look at a queue without changing it: peek, status, tenants, lengths, dead letters.

Begin with the module that has the name of the call. `peek` has one module for each place where messages lie.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardq.ops.inspect import dead_letters, journal, peek, stats, status, tenants

__all__ = ["dead_letters", "journal", "peek", "stats", "status", "tenants"]


def __getattr__(name: str) -> ModuleType:
    """Import a module when it is first asked for: few programs look into queues."""
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
