"""`shardq edge status`: what the spool holds, and who delivers it."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from shardq.cli.edge.options import add_spool, open_spool
from shardq.cli.parsing import Args, command, takes
from shardq.cli.shell import Shell
from shardq.clock import SystemClock


@command("status", "show what the spool holds and who delivers it")
@takes(add_spool)
def run(args: Args, shell: Shell) -> None:
    """Print the counts."""
    found = looked(args)
    age = f", the oldest for {found['oldest_age']:,.0f} s" if found["waiting"] else ""
    more = " (see `shardq edge refused`)" if found["refused"] else ""
    lines = [
        f"waiting   {found['waiting']:,} messages, {found['bytes']:,} bytes{age}",
        f"accepted  {found['accepted']:,}",
        f"acked     {found['acked']:,}",
        f"refused   {found['refused']:,}{more}",
        f"dropped   {found['dropped']:,}",
        "delivery  " + (f"by process {found['delivered_by']}" if found["delivered_by"] else "by nobody now"),
    ]
    shell.show("\n".join(lines), found)


def looked(args: Args) -> dict[str, Any]:
    """The spool's counts as values for JSON."""
    from shardq.edge.lock import DeliveryLock

    with closing(open_spool(args)) as spool:
        counts = spool.counts()
        age = max(0.0, SystemClock().wall() - counts.oldest_at) if counts.waiting else 0.0
        found = counts._asdict() | {"oldest_age": round(age, 3), "delivered_by": DeliveryLock(spool.path).holder()}
    del found["oldest_at"]
    return found
