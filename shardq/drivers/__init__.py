"""The only I/O: run operations against servers, with threads (`Driver`) or asyncio (`AsyncDriver`).

`exchanges` says which round trips a step takes and judges the answers, for both drivers alike; `wire` turns steps into
commands, and `topology` knows which node owns a slot. `sync` and `aio` connect, send, receive and sleep. `target` reads
a URL; `failures` turns redis-py's exceptions into two. Connections come from redis-py's pools, which `pools` makes with
every setting that matters, since the defaults retry writes blindly, break long blocks and swallow cancellations.
"""

from __future__ import annotations

from shardq.drivers.aio import AsyncDriver
from shardq.drivers.sync import Driver
from shardq.drivers.target import Target

__all__ = ["AsyncDriver", "Driver", "Target"]
