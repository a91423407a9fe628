"""One module per pipeline of `shardq pipeline`, as in `commands`. PySpark is imported when one runs, not before."""

from __future__ import annotations

from types import ModuleType

from shardq.cli.pipelines import fairness, plan

ALL: tuple[ModuleType, ...] = (fairness, plan)
"""In the order in which the help lists them."""
