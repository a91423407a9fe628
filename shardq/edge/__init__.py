"""Producers without access to Redis: messages go to a gateway over gRPC, and wait on disk until it has stored them.

`Edge` and `AsyncEdge` are the public face; docs/edge.md tells the story. It needs the extra `edge`.
"""

from __future__ import annotations

from shardq.edge.client import AsyncEdge, Edge, EdgeStatus
from shardq.edge.compose import EdgeMessage
from shardq.edge.delivering import Progress
from shardq.edge.outcome import AsyncSent, Sent
from shardq.edge.refusals import Refused
from shardq.edge.settings import EdgeSettings
from shardq.edge.spool import Held, SpoolCounts

__all__ = [
    "AsyncEdge", "AsyncSent", "Edge", "EdgeMessage", "EdgeSettings", "EdgeStatus", "Held", "Progress", "Refused",
    "Sent", "SpoolCounts",
]  # fmt: skip
