"""Tools to test code that uses shardq: a clock that the test moves, and a client that needs no server.

::

    clock = ManualClock()
    jobs = fake_client(clock=clock).queue("jobs", visibility_timeout=30)
    jobs.write("payload", shard_key="tenant")
    jobs.read()
    clock.advance(30)                # the lease ends ...
    assert jobs.read().count == 2    # ... and the message is delivered again

The client runs shardq's own Lua scripts on fakeredis (`pip install "fakeredis[lua]"`), which imitates a Redis server in
this process. `fake_async_client` is its twin for asyncio. Use them for unit tests only. For all other tests use
`shardq.embedded.EmbeddedServer`, a real server that starts in well under a second.
"""

from __future__ import annotations

from shardq.testing.clock import ManualClock
from shardq.testing.fake import fake_async_client, fake_client

__all__ = ["ManualClock", "fake_async_client", "fake_client"]
