"""What operators do with a queue: settings, limits, plans, weights, assignments, purges, dead letters.

Begin with the module that has the name of what is changed. Each change looks the queue up first, and says how much of
it is done if it fails in the middle.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardq.ops.operate import assign, dead_letters, declare, limits, plans, queues, weights

__all__ = ["assign", "dead_letters", "declare", "limits", "plans", "queues", "weights"]


def __getattr__(name: str) -> ModuleType:
    """Import a module when it is first asked for: few programs are operators."""
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
