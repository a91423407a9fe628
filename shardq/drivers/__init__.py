"""The drivers, which do all I/O of clients: they run operations with threads (`Driver`) or asyncio (`AsyncDriver`).

`exchanges` decides which round trips a step takes and what the answers mean, for both drivers. `forms` knows whether a
node gets functions or scripts, and `sending` what follows when it knows neither. `wire` turns steps into commands,
and `topology` knows which node owns a slot. `sync` and `aio` carry it all out. Connections come from redis-py's pools;
`pools` sets every setting that matters, because with the defaults redis-py repeats connecting and breaks long blocking
calls. Calls and replies go over `links`, or with asyncio over `async_links`, which several calls share
(`shared_links`); `resp` reads the replies. `target` parses a URL. `failures` turns redis-py's exceptions into `Refused`
and `Unanswered`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardq.drivers.sync import Driver
from shardq.drivers.target import Target
from shardq.later import names_from

if TYPE_CHECKING:
    from shardq.drivers.aio import AsyncDriver

__all__ = ["AsyncDriver", "Driver", "Target"]

__getattr__ = names_from(__name__, {"AsyncDriver": "shardq.drivers.aio"})
"""A program has one kind of client."""
