"""`shardq tenant`: what one tenant has in a queue."""

from __future__ import annotations

from shardq.cli.parsing import Args, add_queue, argument, command, takes
from shardq.cli.shell import Shell
from shardq.cli.table import facts
from shardq.cli.tenants import fields_of, remark_of
from shardq.cli.text import bytes_fields, duration, ends_at, shown_key
from shardq.model import Tenant

ABOUT = """Neighbours are the shard keys with large backlogs that share most of its streams: a tenant that shares
none with them does not wait for them, even if there is no window."""

EXAMPLES = """  shardq tenant jobs acct-7"""


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@argument("shard_key", metavar="KEY", help="the shard key, or the parent")
def run(args: Args, shell: Shell) -> None:
    """Print it."""
    queue, _ = shell.existing(args.queue)
    found = queue.tenant(args.shard_key)
    near = [
        {**bytes_fields("shard_key", each.shard_key), "shared": each.shared, "backlog": each.backlog}
        for each in found.neighbours
    ]
    shell.show(facts(_facts(found)), {"queue": args.queue, **fields_of(found), "neighbours": near})


def _facts(found: Tenant) -> list[tuple[str, str]]:
    rows = [
        ("shard key", shown_key(found.shard_key)),
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
