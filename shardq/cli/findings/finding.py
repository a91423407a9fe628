"""One thing that breaks queues, or will: its name, the problem, the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Final

from shardq.cli.exits import UsageError
from shardq.cli.width import columns, cut, wrapped
from shardq.outlook.findings import Finding

NAMES: Final = {
    "append-only-file": "a restart loses more than you, or the level, allow",
    "bindings": "patterns are bound to queues that do not exist",
    "clients": "nearly as many clients are connected as the server takes",
    "clock": "the server's clock differs from this machine's, or jumps",
    "eviction": "the server evicts messages, or would",
    "fsync": "a loss of power loses more than the level promises",
    "leases": "leases of a queue end by time again and again",
    "libraries": "the server has libraries of other versions of shardq",
    "lua-fixes": "the server lacks fixes of its Lua",
    "memory": "the server is near its memory's limit, or was at it",
    "no-worker": "a queue has a backlog, and nobody reads it",
    "partitions": "partitions share a node, do not answer, or nobody reads some",
    "paused": "paused for more than a day, without an end",
    "persistence": "the server cannot write its files",
    "replica": "this server is a replica, which takes no writes",
    "replicas": "fewer replicas than the durability level needs",
    "rights": "this user lacks rights that its role needs",
    "version": "the server is too old, or not one that shardq is tested on",
}
"""The names of all findings, each with the problem that it reports."""


def checked_names(accepts: Sequence[str]) -> None:
    """UsageError for a name that no finding can have: a typo would leave out nothing, or hide it for ever."""
    for each in accepts:
        name = each.partition(":")[0]
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it is one of {', '.join(NAMES)}"
            raise UsageError(f"--accept: there is no finding {name!r}: {hint}")


def not_accepted(findings: Iterable[Finding], accepts: Sequence[str]) -> list[Finding]:
    """Return the findings that the team does not accept. One that is fatal cannot be accepted."""
    return [each for each in findings if each.is_fatal or not {each.name, each.label} & {*accepts}]


def lines(findings: Sequence[Finding]) -> list[str]:
    """Return a line on each finding, and below it what to do."""
    found: list[str] = []
    for each in findings:
        found.append(cut(f"{each.label}: {each.line}", columns()))
        found += [f"    {line}" for line in wrapped(each.mend, columns() - 4)]
    return found
