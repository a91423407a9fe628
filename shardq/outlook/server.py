"""A server's report of its memory."""

from __future__ import annotations

import re
from typing import Final

from shardq.outlook.facts import ServerMemory

_FIELD: Final = re.compile(rb"^(used_memory|maxmemory|errorstat_OOM):(?:count=)?(\d+)", re.MULTILINE)


def memory_of(info: bytes) -> ServerMemory | None:
    r"""Read the sections memory and errorstats of INFO. None if they are not there.

    >>> memory_of(b"# Memory\r\nused_memory:98\r\nmaxmemory:100\r\n# Errorstats\r\nerrorstat_OOM:count=7\r\n")
    Memory(used=98, limit=100, refused=7)
    """
    found = {name: int(count) for name, count in _FIELD.findall(info)}
    if b"used_memory" not in found:
        return None
    return ServerMemory(found[b"used_memory"], found.get(b"maxmemory", 0), found.get(b"errorstat_OOM", 0))
