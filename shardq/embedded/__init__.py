"""A private Redis or Valkey server, which this process starts and which ends with it.

::

    with EmbeddedServer() as server:                      # in memory, on a private unix socket
        client = Client.from_url(server.url)

    with EmbeddedServer(directory="jobs.d") as server:    # on disk: survives restarts
        ...

`binary` finds a server program, `child` runs a process that cannot outlive this one, `home` is the directory in which
the server runs, `server` makes a server of these.
"""

from __future__ import annotations

from shardq.embedded.binary import ServerBinary, find_server, probe_server
from shardq.embedded.server import EmbeddedServer

__all__ = ["EmbeddedServer", "ServerBinary", "find_server", "probe_server"]
