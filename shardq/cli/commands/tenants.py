"""`shardq tenants`: the tenants with most in a queue, or the numbers of one."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shardq.cli.exits import NothingThere, UsageError
from shardq.cli.output import clear, say
from shardq.cli.parsing import Args, add_queue, argument, command, flag, takes
from shardq.cli.shell import Shell
from shardq.cli.table import draw, facts
from shardq.cli.tenants import COLUMNS, FOLDED_WIDTHS, RIGHT, USES, fields_of, remark_of, row_of, uses_of
from shardq.cli.text import bytes_fields, duration, ends_at, json_line, printable, shown_key
from shardq.cli.values import number
from shardq.cli.width import wrapped
from shardq.model import QueueStats, Tenant
from shardq.ops.inspect.tenants import BOUNDS, MAX_LIMIT, ORDERS
from shardq.outlook.said import Said
from shardq.outlook.tenant import TenantCase, tenant_said, works_of
from shardq.protocol.bodies import text_or_bytes

if TYPE_CHECKING:
    from shardq.client import Queue

ABOUT = """Shows for each shard key (or parent) its backlog; of this, what is held back until its turn comes, and what a
limit or a pause blocks; what is in flight; by how much work it is ahead of those whose turn is next; what is delayed;
and for how long the first of its messages has waited. In the orders dedup, dead and results: what it uses of the bounds
that all tenants share.

With KEY it says why one tenant waits, and shows all of it. Its neighbours are the shard keys with large backlogs that
share most of its streams: a tenant that shares none with them does not wait for them, even if there is no window."""

EXAMPLES = """  shardq tenants jobs
  shardq tenants jobs acct-7
  shardq tenants jobs --order oldest -n 5 --watch 10s
  shardq tenants jobs --order dead
  shardq tenants jobs --json | jq '.tenants[].shard_key'"""

LINES_AROUND = 5
"""Lines of a terminal that are not of tenants: three above the table, its header, and the cursor's."""


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@argument("key", metavar="KEY", nargs="?", help="one tenant: its shard key, or the parent's")
@argument("--order", choices=ORDERS, metavar="WHAT", help=f"who comes first: {', '.join(ORDERS)} (backlog)")
@flag("limit", f", and at most {MAX_LIMIT:,} (20)")
@argument("--start", type=number(0), metavar="N", help="leave out the first N (0)")
@flag("watch")
@flag("times")
def run(args: Args, shell: Shell) -> None:
    """Print them; with --watch again and again."""
    if args.key is not None and (args.order, args.limit, args.start) != (None, None, None):
        raise UsageError("--order, --limit and --start are of a list, not of one tenant")
    queue, now = shell.existing(args.queue)
    if args.watch is None and args.times is None:
        if not _look(queue, args, shell):
            raise NothingThere(_nothing(args))
        return
    pause, looks = threading.Event(), 0
    while True:
        if not shell.json:
            clear()
            say(f"{_head(now)}\n")
        _look(queue, args, shell, fits=True)
        sys.stdout.flush()
        looks += 1
        if looks == args.times:
            return
        pause.wait(args.watch or 2.0)
        now = queue.stats()


def _nothing(args: Args) -> str:
    if args.key is not None:
        return f"tenant {printable(args.key)} has nothing in queue {args.queue!r}"
    what = "uses any of it" if args.order in BOUNDS else "has anything waiting"
    return f"nobody {what} in queue {args.queue!r}"


def _look(queue: Queue, args: Args, shell: Shell, *, fits: bool = False) -> bool:
    """Print them, or one; return whether there is anything."""
    if args.key is not None:
        one = queue.tenant(text_or_bytes(os.fsencode(args.key)), neighbours=True)
        if has := _has_any(one) or fits:
            show_one(shell, args.queue, one, _why(queue, one))
        return has
    order: Any = args.order or "backlog"
    limit = args.limit or 20
    found = queue.tenants(order, limit=_fitting(limit) if fits else limit, start=args.start or 0)
    show(shell, args.queue, found, of_uses=order in BOUNDS)
    return bool(found)


def _has_any(one: Tenant) -> bool:
    counts = (one.backlog, one.delayed, one.in_flight, one.dead, one.dedup_keys, one.result_bytes)
    return any(counts) or bool(remark_of(one)) or one.paused_until is not None


def show(shell: Shell, name: str, found: Sequence[Tenant], *, of_uses: bool = False) -> None:
    """Print a table of tenants: of waiting messages, or *of_uses* of bounds."""
    if shell.json:
        say(json_line({"queue": name, "tenants": [fields_of(each) for each in found]}))
    elif found and of_uses:
        draw(USES, [uses_of(each) for each in found], right=RIGHT, folded=FOLDED_WIDTHS)
    elif found:
        draw(COLUMNS, [row_of(each) for each in found], right=RIGHT, folded=FOLDED_WIDTHS)


def _why(queue: Queue, one: Tenant) -> Said:
    """Why it waits."""
    key = one.shard_key
    work = works_of(queue.workers()).get(key)
    return tenant_said(TenantCase(one, queue.outlook(key), queue.controls(key), work))


def show_one(shell: Shell, name: str, found: Tenant, why: Said) -> None:
    """Print why a tenant waits, and all of it."""
    near: list[dict[str, Any]] = [
        {**bytes_fields("shard_key", each.shard_key), "shared": each.shared, "backlog": each.backlog}
        for each in found.neighbours
    ]
    lines = [*wrapped(why.sentence), *(wrapped(why.reason) if why.second else []), "", facts(_facts(found))]
    told = {"sentence": why.sentence, "second": why.reason}
    shell.show("\n".join(lines), {"queue": name, **fields_of(found), "neighbours": near, **told})


def _facts(found: Tenant) -> list[tuple[str, str]]:
    rows = [
        ("tenant", shown_key(found.shard_key)),
        ("backlog", f"{found.backlog:,}"),
        ("in streams", f"{found.in_streams:,}"),
        (
            "held back",
            f"{found.held_back - found.limited:,} until its turn comes, {found.limited:,} by a limit or pause",
        ),
        ("in flight", f"{found.in_flight:,}"),
        ("ahead", f"{duration(found.ahead)} of work more than those whose turn is next"),
        ("delayed", f"{found.delayed:,}"),
        ("oldest", duration(found.oldest_age)),
        ("limits", remark_of(found) or "none of its own"),
        ("dedup keys", f"{found.dedup_keys:,}"),
        ("dead letters", f"{found.dead:,}"),
        ("results", f"{found.result_bytes:,} bytes"),
    ]
    if found.paused_until is not None:
        rows.append(("paused until", ends_at(found.paused_until)))
    if found.streams:
        rows.append(("streams", " ".join(map(str, found.streams))))
    for at, each in enumerate(found.neighbours):
        shared = f"{each.shared} of its streams, backlog {each.backlog:,}"
        rows.append(("" if at else "neighbours", f"{shown_key(each.shard_key)}: {shared}"))
    return rows


def _fitting(limit: int) -> int:
    """Return how many tenants to show: on a terminal as many as it has lines for, so that the first stay in sight."""
    return min(limit, max(1, shutil.get_terminal_size().lines - LINES_AROUND)) if sys.stdout.isatty() else limit


def _head(now: QueueStats) -> str:
    return (
        f"{printable(now.queue)}: backlog {now.backlog:,}, runnable {now.runnable:,}, in flight {now.in_flight:,}, "
        f"delayed {now.delayed:,},\ndead {now.dead:,}, oldest {duration(now.oldest_age)}"
    )
