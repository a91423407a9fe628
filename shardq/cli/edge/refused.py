"""`shardq edge refused`: the messages that the gateway would not take."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime

from shardq.cli.edge.options import add_spool, open_spool
from shardq.cli.exits import NOTHING, OK
from shardq.cli.output import remark
from shardq.cli.parsing import Args, command, takes
from shardq.cli.shell import Shell
from shardq.cli.text import printable

ABOUT = "The newest thousand are kept. Nothing sends them again; what they hold is not shown."


@command("refused", "show which messages the gateway refused, and why", ABOUT)
@takes(add_spool)
def run(args: Args, shell: Shell) -> int:
    """Print a line for each."""
    from shardq.datasink.messages import Request

    with closing(open_spool(args)) as spool:
        found = spool.refused()
    for each in found:
        request = Request.FromString(each.request)
        where = request.queue or f"topic {request.topic}"
        at = datetime.fromtimestamp(each.at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        line = f"{at}  {each.id.hex()}  {printable(f'{where}  {each.reason}  {each.text}')}"
        value = {"message_id": each.id.hex(), "to": where, "reason": each.reason, "text": each.text, "at": each.at}
        shell.show(line, value)
    if not found:
        remark("no message was refused")
    return OK if found else NOTHING
