"""Look at a queue without changing it: peek, status, tenants, lengths, dead letters, failures.

Begin with the module that has the name of the call. `peek` has one module for each place where messages lie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardq.later import modules_of

if TYPE_CHECKING:
    from shardq.ops.inspect import beats, dead_letters, failures, journal, outlook, peek, stats, status, tenants

__all__ = ["beats", "dead_letters", "failures", "journal", "outlook", "peek", "stats", "status", "tenants"]

__getattr__ = modules_of(__name__, __all__)
"""Few programs look into queues."""
