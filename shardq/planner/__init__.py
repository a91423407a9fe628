"""Choosing the number of streams (N) and the streams per shard (M), with the isolation that they give and their cost.

>>> chosen = plan(tenants=10_000, noisy=20, isolation=0.99)
>>> chosen.streams, chosen.streams_per_shard
(246, 3)
"""

from __future__ import annotations

from shardq.planner.assignment import Assignment, capacity
from shardq.planner.choice import Plan, frontier, plan
from shardq.planner.costs import Cost, cost
from shardq.planner.odds import busy, clean_odds, lost_odds

__all__ = ["Assignment", "Cost", "Plan", "busy", "capacity", "clean_odds", "cost", "frontier", "lost_odds", "plan"]
