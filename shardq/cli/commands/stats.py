"""`shardq stats`: print a queue's numbers, once or repeatedly."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from shardq.cli.grid import listing
from shardq.cli.looking import looked_at
from shardq.cli.parsing import Args, add_queue, argument, command, flag, takes
from shardq.cli.screens.stats import lines
from shardq.cli.shell import Shell
from shardq.cli.text import bytes_fields, duration, plural, shown_key
from shardq.cli.watching import watch
from shardq.model import QueueStats
from shardq.model.stats import COUNTS
from shardq.model.wording import moment, span
from shardq.outlook.queues import QueueLook

if TYPE_CHECKING:
    from shardq.model.outlook import Outlook

ABOUT = """The first lines say how the queue is; who waits, and for what (a worker where none reads, a turn, a limit,
the end of a pause, its time, its next try: each message counts once); in which time the backlog is served, as things
go; and what would help, or would not.

All numbers below are of the same instant. backlog: messages that wait to be delivered; held back: those of them
that wait for their turn, a limit or the end of a pause; runnable: those that no limit and no pause holds back; in
flight: leased messages; delayed: messages that are not due yet; dead: dead letters; oldest age: how long the oldest
message that could be delivered has waited. The counters below them (written, acked, ...) only grow."""

EXAMPLES = """  shardq stats jobs
  shardq stats jobs --field load      # to scale by: runnable and in flight
  shardq stats jobs --watch 1s        # with rates, until Ctrl-C
  shardq stats jobs --json --watch 10 >> jobs.jsonl"""

BAR_GLYPHS = "▁▂▃▄▅▆▇█"
MAX_BARS = 64
PRESENT_FIELDS = [
    *("wanted", "legacy", "held_back", "limited", "runnable", "tenants_waiting", "retrying", "due_soon"),
    *("result_count", "result_bytes"),
]
COUNTERS = [name for name in COUNTS if name not in PRESENT_FIELDS]
"""Numbers that only grow."""
SUMS = {"load": ("runnable", "in_flight"), "len": ("backlog", "in_flight")}
"""Sums of fields: `load` is what keeps workers busy, `len` all that is undelivered or in flight, as of `Queue.len`."""
OUTLOOK_FIELDS = ("drain_seconds", "workers", "slots", "busy")
"""Fields of the outlook: they take more calls than those of `Queue.stats`."""
FIELDS = [
    *SUMS,
    *OUTLOOK_FIELDS,
    *(name for name in QueueStats.__struct_fields__ if name not in ("queue", "id", "streams")),
]


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@argument("--field", choices=FIELDS, metavar="FIELD", help="print this number alone, such as load, backlog, oldest_age")
@flag("watch")
def run(args: Args, shell: Shell) -> None:
    """Print the numbers; with --watch repeatedly."""
    queue, first = shell.existing(args.queue)
    before: QueueStats | None = None

    def look() -> tuple[list[str], list[dict[str, Any]]]:
        nonlocal before
        last, before = before, queue.stats() if before else first
        if args.field is not None:
            value = (
                field_of(before, args.field)
                if args.field not in OUTLOOK_FIELDS
                else getattr(queue.outlook(), args.field)
            )
            return [_spelled(value)], [{"queue": args.queue, args.field: value}]
        found = looked_at(queue, before)
        return lines_of(before, found, last), [fields_of(found)]

    watch(args, shell, look)


def field_of(now: QueueStats, name: str) -> Any:
    """One number, or another fact, by its name."""
    return sum(getattr(now, each) for each in SUMS[name]) if name in SUMS else getattr(now, name)


def _spelled(value: Any) -> str:
    return f"{value:.15g}" if isinstance(value, (int, float)) else str(value or "-")


def lines_of(now: QueueStats, look: QueueLook, before: QueueStats | None) -> list[str]:
    """How the queue is, who waits, what would help; then its numbers, with rates since *before*."""
    told = [*lines(look.verdict, look.outlook), ""] if look.verdict and look.outlook else []
    told += listing([*_numbers(now), *_counters(now, before)])
    if any(now.streams):
        told += ["", f"backlog per stream, at most {max(now.streams):,}", bars(now.streams)]
    return told


def fields_of(look: QueueLook) -> dict[str, Any]:
    """The numbers as JSON, with the verdict and the outlook behind them."""
    verdict, outlook = look.verdict, look.outlook
    told = {"verdict": asdict(verdict) if verdict else None, "outlook": _outlook(outlook) if outlook else None}
    if look.stats is None:
        return told
    until = look.stats.paused_until
    return asdict(look.stats) | {"paused_until": "resumed" if until == math.inf else until} | told


def _outlook(outlook: Outlook) -> dict[str, Any]:
    tenants = [{**bytes_fields("shard_key", each.shard_key), **_without_key(each)} for each in outlook.tenants]
    helps = [{**_without_key(each), "shard_key": _key(each.shard_key)} for each in outlook.helps]
    return asdict(outlook) | {"tenants": tenants, "helps": helps}


def _without_key(struct: Any) -> dict[str, Any]:
    return {name: value for name, value in asdict(struct).items() if name != "shard_key"}


def _key(shard_key: str | bytes | None) -> Any:
    return shard_key if shard_key is None or isinstance(shard_key, str) else shown_key(shard_key)


def _numbers(now: QueueStats) -> list[tuple[str, str]]:
    reading = len(now.streams)
    shrinking = "" if now.wanted == reading else f", {now.wanted} once the others are drained"
    found = [
        ("queue", now.queue),
        ("id", now.id),
        ("backlog", f"{now.backlog:,}" + _held_back(now)),
        ("runnable", f"{now.runnable:,}"),
        ("tenants waiting", f"{now.tenants_waiting:,}" + (" besides those in streams" if any(now.streams) else "")),
        ("in flight", f"{now.in_flight:,}"),
        ("delayed", f"{now.delayed:,}" + _delayed(now)),
        ("dead", f"{now.dead:,}"),
        ("oldest age", duration(now.oldest_age) + (" or more" if now.oldest_age_is_sampled else "")),
        ("streams", f"{reading}{shrinking}; {plural(sum(map(bool, now.streams)), 'stream')} with a backlog"),
    ]
    if now.paused_until is not None:
        found.append(("paused", _paused(now)))
    if now.result_count:
        found.append(("results", f"{now.result_count:,} kept, {plural(now.result_bytes, 'byte')}"))
    return [*found, ("legacy", f"{now.legacy:,}")] if now.legacy else found


def _held_back(now: QueueStats) -> str:
    if not now.held_back:
        return ""
    limits = f", {now.limited:,} of these by limits or pauses" if now.limited else ""
    return f" ({now.held_back:,} held back{limits})"


def _delayed(now: QueueStats) -> str:
    """The remark on delayed messages."""
    next_due = None if now.next_due is None else f"the next in {span(max(0.0, now.next_due - now.time))}"
    due_soon = f"{now.due_soon:,} within a minute" if now.due_soon else None
    retrying = f"{now.retrying:,} to be tried again" if now.retrying else None
    told = ", ".join(filter(None, (next_due, due_soon, retrying)))
    return f" ({told})" if told else ""


def _paused(now: QueueStats) -> str:
    """Since when and until when the queue is paused, by whom and why."""
    end = "without an end" if now.paused_until in (None, math.inf) else f"until {moment(now.paused_until, now.time)}"
    since = f"since {moment(now.paused_since, now.time)}, " if now.paused_since is not None else ""
    by = f", by {now.paused_by}" if now.paused_by else ""
    return f"{since}{end}{by}{f': {now.paused_note}' if now.paused_note else ''}"


def _counters(now: QueueStats, before: QueueStats | None) -> list[tuple[str, str]]:
    """The counters; except for `written` and `acked` only those that are not 0."""
    found = []
    for name in COUNTERS:
        count = getattr(now, name)
        if count or name in ("written", "acked"):
            found.append((name, f"{count:,}{_rate(name, now, before)}"))
    return found


def _rate(name: str, now: QueueStats, before: QueueStats | None) -> str:
    if before is None or now.time <= before.time:
        return ""
    return f"  ({(getattr(now, name) - getattr(before, name)) / (now.time - before.time):,.1f}/s)"


def bars(streams: tuple[int, ...]) -> str:
    """One bar per stream, or per group of streams if there are more than `MAX_BARS`; a dot for an empty one."""
    each = -(-len(streams) // MAX_BARS)
    sums = [sum(streams[at : at + each]) for at in range(0, len(streams), each)]
    top = max(*sums, 1)
    return "".join(BAR_GLYPHS[(count * (len(BAR_GLYPHS) - 1)) // top] if count else "·" for count in sums)
