"""The edge producer: every installed Python file becomes a message, read from disk and put into the spool.

It may be killed at any time. The next one asks the spool how many messages it has accepted, and goes on behind these.
"""

import sys
from pathlib import Path

from examples.demo.files import sources
from shardq.edge import Edge

QUEUE = "files"


def main(gateway: str, spool: str, limit: int) -> None:
    """Put all files into the spool, and wait until they are delivered."""
    with Edge(gateway, spool=spool, name="demo", max_payload=4 * 1024 * 1024) as edge:
        for file in sources(limit)[edge.status().spool.accepted :]:
            edge.send(Path(file.path).read_bytes(), queue=QUEUE, shard_key=file.tenant, headers={"path": file.path})
        edge.flush(timeout=50)
        done = edge.status().delivery
        print(f"{done.plain_bytes} {done.frame_bytes} {done.connections}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
