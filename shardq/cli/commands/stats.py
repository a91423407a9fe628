"""`shardq stats`: print a queue's numbers, once or repeatedly."""

from __future__ import annotations

import sys
import threading

from msgspec.structs import asdict

from shardq.cli.output import clear, say
from shardq.cli.parsing import Args, add_queue, argument, command, period, takes
from shardq.cli.shell import Shell
from shardq.cli.table import facts
from shardq.cli.text import duration, json_line, plural
from shardq.model import QueueStats
from shardq.model.stats import COUNTS

ABOUT = """All numbers are of the same instant. backlog: messages that wait to be delivered; held back: those of them
that wait for their turn, a limit or the end of a pause; runnable: those that no limit and no pause holds back; in
flight: leased messages; delayed: messages that are not due yet; dead: dead letters; oldest age: how long the oldest
message that could be delivered has waited. The counters below them (written, acked, ...) only grow."""

EXAMPLES = """  shardq stats jobs
  shardq stats jobs --watch           # every second, with rates, until Ctrl-C
  shardq stats jobs --json --watch 10 >> jobs.jsonl"""

BARS = "▁▂▃▄▅▆▇█"
MOST_BARS = 64
OF_NOW = [
    *("wanted", "legacy", "held_back", "limited", "runnable", "tenants_waiting", "retrying"),
    *("result_count", "result_bytes"),
]
COUNTERS = [name for name in COUNTS if name not in OF_NOW]
"""What only grows."""


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@argument("-w", "--watch", type=period, nargs="?", const=1.0, metavar="S", help="print them every S seconds (1)")
def run(args: Args, shell: Shell) -> None:
    """Print the numbers; with --watch repeatedly."""
    queue, now = shell.existing(args.queue)
    _show(shell, now, None)
    pause = threading.Event()
    while args.watch is not None:
        pause.wait(args.watch)
        before, now = now, queue.stats()
        if not shell.json:
            say()
            clear()
        _show(shell, now, before)


def _show(shell: Shell, now: QueueStats, before: QueueStats | None) -> None:
    if shell.json:
        say(json_line(asdict(now)), flush=True)
        return
    say(facts([*_numbers(now), *_counters(now, before)]))
    if any(now.streams):
        say(f"\nbacklog per stream, at most {max(now.streams):,}\n{bars(now.streams)}")
    sys.stdout.flush()


def _numbers(now: QueueStats) -> list[tuple[str, str]]:
    reading = len(now.streams)
    shrinking = "" if now.wanted == reading else f", {now.wanted} once the others are drained"
    found = [
        ("queue", now.queue),
        ("id", now.id),
        ("backlog", f"{now.backlog:,}" + _held_back(now)),
        ("runnable", f"{now.runnable:,}"),
        ("tenants waiting", f"{now.tenants_waiting:,}"),
        ("in flight", f"{now.in_flight:,}"),
        ("delayed", f"{now.delayed:,}" + (f" ({now.retrying:,} to be tried again)" if now.retrying else "")),
        ("dead", f"{now.dead:,}"),
        ("oldest age", duration(now.oldest_age) + (" or more" if now.oldest_age_is_sampled else "")),
        ("streams", f"{reading}{shrinking}; {plural(sum(map(bool, now.streams)), 'stream')} with a backlog"),
    ]
    if now.result_count:
        found.append(("results", f"{now.result_count:,} kept, {plural(now.result_bytes, 'byte')}"))
    return [*found, ("legacy", f"{now.legacy:,}")] if now.legacy else found


def _held_back(now: QueueStats) -> str:
    if not now.held_back:
        return ""
    limits = f", {now.limited:,} of these by limits or pauses" if now.limited else ""
    return f" ({now.held_back:,} held back{limits})"


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
    """One bar per stream, or per group of streams if there are more than `MOST_BARS`; a dot for an empty one."""
    each = -(-len(streams) // MOST_BARS)
    sums = [sum(streams[at : at + each]) for at in range(0, len(streams), each)]
    top = max(*sums, 1)
    return "".join(BARS[(count * (len(BARS) - 1)) // top] if count else "·" for count in sums)
