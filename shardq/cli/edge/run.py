"""`shardq edge run`: deliver what is in the spool, until the command is ended."""

from __future__ import annotations

import threading

from shardq.cli.edge.options import add_gateway, open_edge
from shardq.cli.output import remark
from shardq.cli.parsing import Args, command, takes
from shardq.cli.shell import Shell

LOOK_INTERVAL = 1.0
ABOUT = """It continues after programs that have put messages into the spool and ended. A line on stderr tells when its
state changes. Ctrl-C ends it; messages that are not acked stay in the spool."""


@command(ABOUT, extra="edge")
@takes(add_gateway)
def run(args: Args, shell: Shell) -> int:
    """Deliver until Ctrl-C."""
    never, told = threading.Event(), ""
    with open_edge(args) as edge:
        while True:
            status = edge.status()
            why = f": {status.delivery.last_error}" if status.delivery.last_error else ""
            if (state := f"{status.delivery.state}{why}") != told:
                remark(f"{state}; {status.spool.waiting:,} messages wait")
                told = state
            never.wait(LOOK_INTERVAL)
