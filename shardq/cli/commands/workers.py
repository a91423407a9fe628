"""`shardq workers`: who works, on what, and who is gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from shardq.cli.exits import NothingThere
from shardq.cli.looking import allowed, is_unread, time_of
from shardq.cli.parsing import Args, argument, command, flag
from shardq.cli.screens.workers import lines
from shardq.cli.shell import Shell
from shardq.cli.text import bytes_fields
from shardq.cli.watching import watch

if TYPE_CHECKING:
    from shardq.model.worker_status import WorkerStatus

ABOUT = """Each worker tells every 5 seconds how it is. One that was silent for 30 seconds is gone: killed, cut off, or
hung with its machine; its line says when it was last heard, and what memory it had then. One that ended in order is
only counted. All are forgotten after an hour.

BUSY is how many of its slots had a job, LONGEST how long the one has run that runs longest, DONE/MIN how many jobs
were done in its last minute, FAIL which part of these failed, HEARD how long ago it was heard."""

EXAMPLES = """  shardq workers
  shardq workers jobs --watch 5s
  shardq workers --json | jq -r 'select(.state == "gone") | .id'"""


@command(ABOUT, EXAMPLES)
@argument("queue", metavar="QUEUE", nargs="?", help="only those of this queue")
@flag("limit", " rows (40)", default=40)
@flag("watch")
def run(args: Args, shell: Shell) -> None:
    """Print them, and which queues nobody reads."""
    found: Sequence[WorkerStatus] = ()
    unread: list[str] = []

    def look() -> tuple[list[str], list[dict[str, Any]]]:
        nonlocal found, unread
        if args.queue is None:
            found, names = shell.client.workers(), shell.client.queues()
            now = time_of(shell, names)
        else:
            queue, numbers = shell.existing(args.queue)
            found, names, now = queue.workers(), [args.queue], numbers.time
        unread = _unread(shell, names, found)
        is_empty = not found and not unread
        told = [] if is_empty else lines(found, now, unread=unread, queue=args.queue or "", most=args.limit)
        return told, [_fields(each) for each in found]

    watch(args, shell, look)
    if not found and not unread:
        raise NothingThere("no worker was heard in the last hour")


def _unread(shell: Shell, names: Sequence[str], found: Sequence[WorkerStatus]) -> list[str]:
    """The queues in which messages wait that nobody reads: workers of earlier versions, which tell nothing, read."""
    read = {each.queue for each in found if each.state == "working"}
    queues = [shell.queue(name) for name in names if name not in read]
    return [queue.name for queue in queues if is_unread(queue, allowed(queue.verdict))]


def _fields(worker: WorkerStatus) -> dict[str, Any]:
    fields = asdict(worker)
    fields["tasks"] = [asdict(each) for each in worker.tasks]
    fields["tenants"] = [
        {**bytes_fields("shard_key", each.shard_key), **{k: v for k, v in asdict(each).items() if k != "shard_key"}}
        for each in worker.tenants
    ]
    return fields
