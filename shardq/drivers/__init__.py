"""The drivers, which do all I/O of clients: they run operations with threads (`Driver`) or asyncio (`AsyncDriver`).

`exchanges` decides which round trips a step takes and what the answers mean, for both drivers. `forms` knows whether a
node gets functions or scripts, and `sending` what follows when it knows neither. `wire` turns steps into commands,
`resp` packs them, and `topology` knows which node owns a slot. `sync` and `aio` connect, send, receive and sleep;
`links` and `shared` do so in the common case. `target` parses a URL. `failures` turns redis-py's exceptions into
`Refused` and `Unanswered`. Connections come from redis-py's pools. `pools` sets every setting that matters, because
with the defaults redis-py repeats writes blindly, breaks long blocking calls and swallows cancellations.
"""

from __future__ import annotations

from shardq.drivers.aio import AsyncDriver
from shardq.drivers.sync import Driver
from shardq.drivers.target import Target

__all__ = ["AsyncDriver", "Driver", "Target"]
