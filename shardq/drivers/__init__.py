"""The only I/O: run operations against servers, with threads (`Driver`) or asyncio (`AsyncDriver`).

`target` reads a URL, `failures` turns redis-py's exceptions into two, `topology` knows which node owns a slot, `wire`
turns steps into commands; `sync` and `aio` move bytes. Connections come from redis-py's pools, built here with every
setting that matters, since its defaults retry writes blindly, break long blocks and swallow cancellations.
"""

from __future__ import annotations

from shardq.drivers.aio import AsyncDriver
from shardq.drivers.sync import Driver
from shardq.drivers.target import Target

__all__ = ["AsyncDriver", "Driver", "Target"]
