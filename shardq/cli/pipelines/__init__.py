"""One module per pipeline of `shardq pipeline`, as in `commands`. PySpark is imported only when a pipeline runs."""

from __future__ import annotations

from types import ModuleType

from shardq.cli.pipelines import archive, fairness, load, plan, redrive, route

ALL: tuple[ModuleType, ...] = (load, archive, fairness, plan, route, redrive)
"""The pipelines, in the order in which the help lists them."""
