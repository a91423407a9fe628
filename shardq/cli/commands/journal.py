"""`shardq journal`: print what happened to a queue's messages."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from shardq.cli.exits import NothingThere
from shardq.cli.filters import tenant_of
from shardq.cli.output import remark, say
from shardq.cli.parsing import Args, add_queue, argument, command, flag, takes
from shardq.cli.shell import Shell
from shardq.cli.table import in_columns
from shardq.cli.text import bytes_fields, date_and_time, duration, json_line, plural, printable, shown_key
from shardq.cli.values import number
from shardq.cli.width import columns
from shardq.errors import QueueMissing
from shardq.model import Event, JournalPage
from shardq.model.event import BITS, before, unpacked
from shardq.protocol.ids import split

if TYPE_CHECKING:
    from shardq.client import Queue

ABOUT = """Prints for each event, in a line if it fits: number, time, what happened, message id and shard key;
then, if known, the delivery count, the delay, who did it (a client, or the author that --by gives) and the note, for a
write the task that it calls, for a delivery how long its handler ran and what the tenant was charged, and the values
that somebody set. A queue keeps a journal once its setting `journal` says how many events to keep. Older events are
dropped; stderr says how many of the requested ones are lost. With --follow it also says when the queue is deleted, and
continues when it is recreated."""

EXAMPLES = """  shardq configure jobs journal=1000000 --yes
  shardq journal jobs --follow
  shardq journal jobs --message 1732150000000-42-7
  shardq journal jobs --after 0 --json > events.jsonl"""

EVENTS_A_PAGE = 1000
POLL_INTERVAL = 0.25


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@flag("limit", " of the newest (20)", default=20)
@argument(
    "--after", type=number(0), metavar="NUMBER", help="begin after the event with this number; 0 begins with the oldest"
)
@flag("follow")
@argument("--message", metavar="ID", help="only events of this message, from the oldest on")
@flag("tenant", "; its events from the oldest on")
def run(args: Args, shell: Shell) -> None:
    """Print events; with --follow continue."""
    queue, _ = shell.existing(args.queue)
    filtered = args.message is not None or args.tenant is not None
    newest = queue.journal(1)
    if not newest.events and not args.follow and not queue.settings().journal:
        raise NothingThere(
            f"queue {args.queue!r} keeps no journal; shardq configure {args.queue} journal=100000 begins one"
        )
    start = args.after if args.after is not None else 0 if filtered else before(newest.latest, args.limit)
    shown = 0
    for event in _events(queue, newest.queue_id, start, follow=args.follow, exact_start=args.after is not None):
        if _wanted(args, event):
            say(json_line(_fields(event)) if shell.json else _lines(event), flush=args.follow)
            shown += 1
    if not shown:
        raise NothingThere(f"the journal of queue {args.queue!r} has no such event")


def _events(queue: Queue, life: str, start: int, *, follow: bool, exact_start: bool) -> Iterator[Event]:
    """The events after *start*. Events lost before the first one are reported only if the user gave --after.

    Say so when the queue whose id is *life* is deleted, and continue with the one that is recreated.
    """
    position, pause, is_there = start, threading.Event(), True
    while True:
        try:
            page, is_there = queue.journal(EVENTS_A_PAGE, after=position), True
        except QueueMissing:
            if not follow:
                raise
            if is_there:
                remark(f"queue {queue.name!r} was deleted; if it is recreated, its events follow")
            is_there = False
            pause.wait(POLL_INTERVAL)
            continue
        if page.queue_id != life:
            remark(f"queue {queue.name!r} was recreated: these are its events from its beginning on")
            life = page.queue_id
        if exact_start or position != start:
            for number in page.lost_in:
                remark(_lost(page, number))
        yield from page.events
        position = page.position
        if position == page.latest:
            if not follow:
                return
            pause.wait(POLL_INTERVAL)


def _lost(page: JournalPage, number: int) -> str:
    """The line for events of a partition that were lost; a queue may have this one alone."""
    first = next((event.number for event in page.events if _partition(event) == number), None)
    following = first or unpacked(page.position, number + 1)[number] + 1
    of = f" of partition {number}" if page.position >> BITS else ""
    return f"{plural(page.lost_in[number], 'event')}{of} before number {following} were lost"


def _partition(event: Event) -> int:
    return split(event.message_id)[1] if event.message_id else 0


def _wanted(args: Args, event: Event) -> bool:
    if args.message is not None and event.message_id != args.message:
        return False
    return args.tenant is None or event.shard_key == tenant_of(args)


def _lines(event: Event) -> str:
    """An event on one line, or on as many as it needs."""
    return "\n".join(in_columns(_line(event), columns(), indent="    "))


def _line(event: Event) -> str:
    time = f"{date_and_time(event.time)}.{int(event.time % 1 * 1000):03}"
    key = "-" if event.shard_key is None else shown_key(event.shard_key)
    until = "for" if event.kind == "paused" else "due in"
    more = [
        f"delivery {event.count}" if event.count else "",
        f"{until} {duration(event.due - event.time)}" if event.due is not None and event.due > event.time else "",
        f"by {printable(event.by)}" if event.by else "",
        printable(event.note),
        f"task {printable(event.task)}" if event.task else "",
        f"ran {duration(event.ran_ms / 1000)}" if event.ran_ms is not None else "",
        f"charged {duration(event.charged_ms / 1000)}" if event.charged_ms else "",
        *(f"{printable(name)}={printable(value)}" for name, value in event.values.items()),
    ]
    which = printable(event.message_id or "-")
    return "  ".join(filter(None, [str(event.number), time, f"{event.kind:<10}", which, key, *more]))


def _fields(event: Event) -> dict[str, Any]:
    key = {"shard_key": None} if event.shard_key is None else bytes_fields("shard_key", event.shard_key)
    return {
        "number": event.number, "time": event.time, "kind": event.kind, "message_id": event.message_id, **key,
        "stream": event.stream, "count": event.count, "due": event.due, "client": event.client,
        "task": event.task, "by": event.by, "note": event.note, "charged_ms": event.charged_ms,
        "ran_ms": event.ran_ms, "values": dict(event.values), "version": event.version,
    }  # fmt: skip
