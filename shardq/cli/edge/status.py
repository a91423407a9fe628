"""`shardq edge status`: the contents of the spool, and the process that delivers it."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from shardq.cli.edge.options import add_spool, open_spool
from shardq.cli.parsing import Args, command, takes
from shardq.cli.shell import Shell
from shardq.cli.text import printable
from shardq.clock import SystemClock

MAX_REASONS = 10
"""Reasons for which messages are held that are shown for people."""


@command(extra="edge")
@takes(add_spool)
def run(args: Args, shell: Shell) -> None:
    """Print the counts."""
    found = looked(args)
    age = f", the oldest for {found['oldest_age']:,.0f} s" if found["waiting"] else ""
    more = " (see `shardq edge refused`)" if found["refused"] else ""
    lines = [
        f"waiting   {found['waiting']:,} messages, {found['bytes']:,} bytes{age}",
        f"held      {found['held']:,}",
        *(f"          {each['count']:,} of {_why(each)}" for each in found["held_for"][:MAX_REASONS]),
        f"accepted  {found['accepted']:,}",
        f"acked     {found['acked']:,}",
        f"refused   {found['refused']:,}{more}",
        f"dropped   {found['dropped']:,}",
        f"files     {found['file_bytes']:,} bytes",
        "delivery  " + (f"by process {found['delivered_by']}" if found["delivered_by"] else "by nobody now"),
    ]
    shell.show("\n".join(lines), found)


def _why(held: dict[str, Any]) -> str:
    return printable(f"{held['reason']}: {held['text']}")


def looked(args: Args) -> dict[str, Any]:
    """The spool's counts as values for JSON."""
    from shardq.edge.lock import DeliveryLock

    with closing(open_spool(args)) as spool:
        counts = spool.counts()
        age = max(0.0, SystemClock().wall() - counts.oldest_at) if counts.waiting else 0.0
        reasons = [{"count": each.messages, "reason": each.reason, "text": each.text} for each in spool.held()]
        found = (
            counts._asdict()
            | {"held_for": reasons}
            | {"oldest_age": round(age, 3), "delivered_by": DeliveryLock(spool.path).holder()}
        )
    del found["oldest_at"]
    return found
