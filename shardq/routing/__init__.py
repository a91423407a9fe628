"""Topics, routed to queues."""

from __future__ import annotations

from shardq.routing.ctrie import Ctrie

__all__ = ["Ctrie"]
