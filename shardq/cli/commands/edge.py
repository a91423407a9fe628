"""`shardq edge NAME`: send messages over a gateway, and look into the spool in which they wait."""

from __future__ import annotations

from shardq.cli.edge import refused, resend, send, status, tail
from shardq.cli.edge import run as deliver
from shardq.cli.parsing import group

ABOUT = """A producer without access to Redis puts its messages into a spool, a file on its disk, from which they go to
a gateway until Redis has stored them. The commands need the extra "edge" (pip install 'shardq[edge]')."""

EXAMPLES = """  shardq edge send metrics 'cpu 0.3' -k site-7 --spool app.db --gateway gw:8443
  shardq edge status --spool app.db"""


run = group(
    "edge",
    "send messages over a gateway, without access to Redis",
    ABOUT,
    EXAMPLES,
    title="commands",
    members=(send.run, deliver.run, status.run, tail.run, refused.run, resend.run),
)
