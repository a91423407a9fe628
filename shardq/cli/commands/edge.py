"""`shardq edge NAME`: send messages over a gateway, and look into the spool in which they wait."""

from __future__ import annotations

from typing import Final

from shardq.cli.menu import Menu
from shardq.cli.parsing import group

ABOUT = """A producer without access to Redis puts its messages into a spool, a file on its disk, from which they go to
a gateway until Redis has stored them."""

EXAMPLES = """  shardq edge send metrics 'cpu 0.3' -t site-7 --spool app.db --gateway gw:8443
  shardq edge status --spool app.db"""

MENU: Final = Menu(
    "shardq.cli.edge",
    {
        "": {
            "send": "put messages into the spool and deliver it",
            "run": "deliver what is in the spool",
            "status": "show what the spool holds and who delivers it",
            "tail": "follow what is put into the spool and what is acked, until Ctrl-C",
            "refused": "show which messages were not stored, and why",
            "resend": "send messages again that were refused",
        }
    },
)

run = group(MENU, ABOUT, EXAMPLES, extra="edge")
