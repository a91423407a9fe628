"""For tests of code that uses shardq: a clock that stands still, and a client that needs no server.

::

    clock = ManualClock()
    jobs = fake_client(clock=clock).queue("jobs", visibility_timeout=30)
    jobs.write("payload", shard_key="tenant")
    jobs.read()
    clock.advance(30)                # the lease ends ...
    assert jobs.read().count == 2    # ... and the message is delivered again

The client runs shardq's own scripts on fakeredis (`pip install "fakeredis[lua]"`), which imitates a server in this
process. That is good for unit tests only: for everything else there is `shardq.embedded.EmbeddedServer`, a real server
that starts in well under a second.
"""

from __future__ import annotations

from shardq.testing.clock import ManualClock
from shardq.testing.fake import fake_client

__all__ = ["ManualClock", "fake_client"]
