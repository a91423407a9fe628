"""Operators' controls of a queue: settings, limits, plans, weights, assignments, purges, dead letters.

Begin with the module that has the name of what is changed. Each change looks the queue up first, and says how much of
it is done if it fails in the middle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardq.later import modules_of

if TYPE_CHECKING:
    from shardq.ops.operate import (
        actions,
        assign,
        controls,
        dead_letters,
        declare,
        limits,
        plans,
        purging,
        queues,
        weights,
    )

__all__ = [
    "actions",
    "assign",
    "controls",
    "dead_letters",
    "declare",
    "limits",
    "plans",
    "purging",
    "queues",
    "weights",
]

__getattr__ = modules_of(__name__, __all__)
"""Few programs are operators."""
