"""`shardq purge`: remove waiting or delayed messages, all of one tenant, or dead letters, for good."""

from __future__ import annotations

from typing import Any

from shardq.cli.acting import ActionWords, act
from shardq.cli.exits import NothingThere, UsageError
from shardq.cli.filters import tenant_of, where_of
from shardq.cli.flags import add_change, add_filter
from shardq.cli.parsing import Args, add_queue, argument, command, flag, takes
from shardq.cli.shell import Shell, asked_by
from shardq.cli.text import plural, shown_key
from shardq.model import QueueStats
from shardq.model.where import Where

ABOUT = """Removes all messages that wait or are delayed, for good. Messages in flight and dead letters stay.

With --tenant alone it removes what that tenant has: its messages that wait or are delayed, its dead letters, and its
unique and dedup keys. Those of all others are left as they are. With --in-flight its messages in flight are cancelled,
too. Results of its done messages cannot be found by tenant: they end by result_ttl.

With --dead it deletes dead letters, by their ids or by the filter, the oldest first; without either all of them. They
cannot be redriven any more. The settings dead_ttl and drop_dead let a queue do so by itself."""

EXAMPLES = """  shardq purge jobs --yes
  shardq purge jobs -t acct-7 --in-flight --note 'ticket 812' --yes
  shardq purge jobs --dead --older-than 7d --dry-run
  shardq purge jobs --dead --id 1795453000000-17-3 --yes"""

DEAD = ActionWords("delete_dead", "Delete", "deleted", "dead letter")


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@argument("--dead", action="store_true", help="delete dead letters")
@argument("--in-flight", action="store_true", help="with --tenant: cancel what is in flight, too")
@flag("id", ", with --dead")
@takes(add_filter)
@flag("limit", ", with --dead (all)")
@flag("rate", ", with --dead (as fast as it can)")
@takes(add_change)
def run(args: Args, shell: Shell) -> int | None:
    """Ask for confirmation, then remove."""
    where = where_of(args, "dead" if args.dead else None)
    if args.dead:
        return _purge_dead(args, where, shell)
    if args.ids or args.limit or args.rate or where != Where(tenant=where.tenant):
        raise UsageError("a filter goes with --dead, or with `shardq cancel`; without --dead only --tenant does")
    if args.in_flight and where.tenant is None:
        raise UsageError("--in-flight goes with --tenant")
    queue, now = shell.existing(args.queue)
    if where.tenant is None:
        _purge_all(queue, now, args, shell)
    else:
        _purge_tenant(queue, args, shell)
    return None


def _purge_all(queue: Any, now: QueueStats, args: Args, shell: Shell) -> None:
    what = f"{now.backlog:,} waiting and {now.delayed:,} delayed messages"
    fields = {"queue": args.queue, "waiting": now.backlog, "delayed": now.delayed}
    if shell.goes_on(args, f"Remove {what} of queue {args.queue!r} for good", fields):
        removed = queue.purge(**asked_by(args))
        shell.show(f"{plural(removed, 'message')} removed", {"queue": args.queue, "purged": removed})


def _purge_tenant(queue: Any, args: Args, shell: Shell) -> None:
    key = tenant_of(args)
    has = queue.tenant(key)
    name = shown_key(has.shard_key)
    what = f"{has.backlog:,} waiting, {has.delayed:,} delayed, {plural(has.dead, 'dead letter')}"
    fields = {"queue": args.queue, "waiting": has.backlog, "delayed": has.delayed, "dead": has.dead}
    if not shell.goes_on(args, f"Remove all of {name} in queue {args.queue!r} for good ({what})", fields):
        return
    found = queue.purge(shard_key=key, in_flight=args.in_flight, **asked_by(args))
    text = (
        f"{name}: {found.waiting:,} waiting, {found.delayed:,} delayed, {plural(found.dead, 'dead letter')} removed; "
        f"{found.left_in_flight:,} in flight"
    )
    shell.show(text, {
        "queue": args.queue, "waiting": found.waiting, "delayed": found.delayed, "dead": found.dead,
        "left_in_flight": found.left_in_flight,
    })  # fmt: skip


def _purge_dead(args: Args, where: Where, shell: Shell) -> int | None:
    queue, _ = shell.existing(args.queue)
    if args.in_flight:
        raise UsageError("--in-flight goes with --tenant, and not with --dead")
    if not args.ids:
        return act(shell, args, DEAD, where, queue.delete_dead)
    if where != Where(state="dead"):
        raise UsageError("--id names dead letters: a filter does not go with it")
    change = f"Delete {plural(len(args.ids), 'dead letter')} of queue {args.queue!r} for good"
    if shell.goes_on(args, change, {"queue": args.queue, "found": len(args.ids)}):
        deleted = queue.delete_dead(ids=args.ids, **asked_by(args))
        if not deleted:
            raise NothingThere(f"queue {args.queue!r} has no such dead letters")
        shell.show(f"{plural(deleted, 'dead letter')} deleted", {"queue": args.queue, "deleted": deleted})
    return None
