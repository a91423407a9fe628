"""`shardq what-if`: replay the jobs of a queue under other settings, and say what that would have come to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict, replace

from shardq.cli.exits import NothingThere, UsageError
from shardq.cli.output import remark, say
from shardq.cli.parsing import Args, Run, argument, command, flag
from shardq.cli.shell import Shell
from shardq.cli.table import draw, in_columns
from shardq.cli.text import duration, json_line, shown_key
from shardq.cli.values import pair
from shardq.cli.width import columns

if TYPE_CHECKING:
    from shardq.whatif.alternative import Alternative
    from shardq.whatif.comparison import Comparison
    from shardq.whatif.history import History
    from shardq.whatif.outcome import Projection
    from shardq.whatif.tables import Recorded

ABOUT = """FOLDER has the tables that `shardq jobs` makes. Its jobs come once more, as long and as often tried as they
were, on a private server whose clock is moved: shardq's own scripts decide who is served, and workers read as they do.
All else is as it was. With several numbers of workers, and with a file, there are several alternatives.

The first row is what was, the second what its replay came to: as far as these two are apart, so far are the others from
the truth. P50 and P99 are waits for the first delivery; QUIET is the p99 of the quieter half of the tenants, WORST that
of the tenant with the longest. IN TIME is the share that waited --within at most. SLOT HOURS are those of all workers,
BUSY the share of them in which a handler ran. The first line names the setting with the fewest slot hours that keeps
--objective. Exit code 3 if there is no such job. This command needs no Redis: it runs a server of its own."""

EXAMPLES = """  shardq what-if mails.jobs --workers 4,5,8
  shardq what-if mails.jobs --since 2026-11-30 --workers 5 --weight acct-7=3
  shardq what-if mails.jobs --limits acct-7=max_in_flight=3,rate=10
  shardq what-if mails.jobs --alternatives tries.toml --plot waits.svg"""

COLUMNS: Final = ("setting", "p50", "p99", "quiet", "worst", "in time", "slot hours", "busy")
HOUR: Final = 3_600.0
HARDLY: Final = 0.005
"""A share of slot hours that is not worth a word."""

NAMED: Final = "named"
"""The alternative that the flags name has this name in errors."""


def takes_alternatives(run: Run) -> Run:
    """Let a command take a folder of jobs, a time, alternatives, and the objective."""
    for each in reversed(_ALTERNATIVES):
        run = each(run)
    return run


_ALTERNATIVES: Final = (
    argument("folder", type=Path, metavar="FOLDER", help="the folder of the tables of jobs"),
    flag("queue", " (the only one in the folder)"),
    *map(flag, ("since", "before", "workers", "slots", "streams", "per_shard")),
    *map(flag, ("setting", "weight", "limits", "alternatives")),
    flag("within", " (1s)", default=1.0),
    flag("objective", " (99)", default=99.0),
)


@command(ABOUT, EXAMPLES, extra="jobs")
@takes_alternatives
@flag("plot")
def run(args: Args, shell: Shell) -> None:
    """Replay, compare, print and draw."""
    from shardq.whatif.comparison import compared

    check_objective(args)
    if args.plot:
        _check_plot(args.plot)
    history = read_jobs(args).history(args.queue, args.since, args.before)
    if history is None:
        raise no_job(args)
    alternatives = alternatives_of(args, history)
    jobs = len(history.arrivals)

    def tell(name: str) -> None:
        remark(f"{name}: {jobs:,} jobs")

    found = compared(history, alternatives, within=args.within, tell=tell)
    if shell.json:
        for each in found.outcomes:
            say(json_line({"queue": history.queue, **asdict(each)}))
    else:
        _show(found, args)
    if args.plot:
        _plot(found, args)


def check_objective(args: Args) -> None:
    """UsageError unless the objective is a share."""
    if args.objective > 100:
        raise UsageError("--objective is a share in percent: at most 100")


def read_jobs(args: Args) -> Recorded:
    """Return what is in the folder, and note the only queue of it as the one that is meant."""
    from shardq.whatif.tables import recorded

    found = recorded(args.folder)
    names = found.queues
    if args.queue is None and len(names) > 1:
        raise UsageError(f"{args.folder} has jobs of several queues: name one with --queue ({', '.join(names[:5])})")
    args.queue = args.queue or (names[0] if names else "")
    return found


def no_job(args: Args) -> NothingThere:
    """Return the error of a folder, or a time, without a job of the queue."""
    return NothingThere(
        f"{args.folder} has no job of {f'queue {args.queue!r}' if args.queue else 'any queue'} in this time"
    )


def alternatives_of(args: Args, history: History) -> list[Alternative]:
    """Return the alternatives that flags and file name. UsageError if nobody knows how many workers there are."""
    from shardq.whatif.alternative import alternative_of, by_workers, read_alternatives

    named = alternative_of(NAMED, _table(args))
    name = ", ".join(_words(args))
    found = by_workers(replace(named, name=name), args.workers) if args.workers else []
    if name and not args.workers:
        found.append(replace(named, name=name))
    found += read_alternatives(args.alternatives) if args.alternatives else []
    if not found and not history.stays:
        raise UsageError("which workers there were is not told: name how many with --workers")
    if (nameless := [each.name for each in found if each.workers is None]) and not history.stays:
        raise UsageError(f"which workers there were is not told: {nameless[0]!r} must say how many")
    return found


def _table(args: Args) -> dict[str, Any]:
    """Return what the flags say as a table of a file would."""
    table: dict[str, Any] = {name: _value(text) for name, text in args.setting}
    flags = {"streams": args.streams, "streams_per_shard": args.per_shard, "slots": args.slots}
    table |= {name: value for name, value in flags.items() if value is not None}
    if args.weight:
        table["weights"] = {key: _value(text) for key, text in args.weight}
    if args.limits:
        table["limits"] = {key: _limits(text) for key, text in args.limits}
    return table


def _words(args: Args) -> Iterator[str]:
    """Name what is otherwise, besides the number of workers."""
    numbers = {"slots": args.slots, "streams": args.streams, "per shard": args.per_shard}
    yield from (f"{value} {name}" for name, value in numbers.items() if value)
    yield from (f"{name}={text}" for name, text in args.setting)
    yield from (f"weight {key}={text}" for key, text in args.weight)
    yield from (f"{key}: {text}" for key, text in args.limits)


def _limits(text: str) -> Any:
    """The limits of a key, as rate=10,burst=5; or the name of a plan."""
    return {name: _value(each) for name, each in map(pair, text.split(","))} if "=" in text else text


def _value(text: str) -> Any:
    """A number, or else a text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


# --- what is shown ----------------------------------------------------------------------------------------------


def _show(found: Comparison, args: Args) -> None:
    say("\n".join(in_columns(_verdict(found, args), columns())))
    say()
    draw(COLUMNS, map(row_of, found.outcomes), right=frozenset(COLUMNS[1:]), folded={"setting": 10})
    for each in found.outcomes:
        if each.never:
            remark(f"{each.name}: {each.never:,} jobs were never delivered")


def _verdict(found: Comparison, args: Args) -> str:
    from shardq.whatif.comparison import cheapest

    goal = f"{args.objective:g}% of the jobs within {duration(args.within)}"
    best = cheapest(found, args.objective / 100)
    if best is None:
        return f"none of these keeps the objective, {goal}; as it was {found.was.in_time:.1%} were in time"
    less = 1 - best.slot_seconds / found.was.slot_seconds if found.was.slot_seconds else 0.0
    slots = f", with {abs(less):.0%} {'fewer' if less > 0 else 'more'} slot hours" if abs(less) >= HARDLY else ""
    was = f"as it was {found.was.in_time:.1%} were"
    return f"{shown_key(best.name)} keeps the objective, {goal}: {best.in_time:.1%} in time{slots} ({was})"


def row_of(each: Projection) -> tuple[str, ...]:
    """Return an outcome as text for `COLUMNS`."""
    return (
        shown_key(each.name),
        *map(duration, (each.all.p50, each.all.p99, each.quiet.p99, each.worst.p99)),
        f"{each.in_time:.1%}",
        f"{each.slot_seconds / HOUR:,.1f}",
        f"{each.busy:.0%}",
    )


def _check_plot(path: Path) -> None:
    """Refuse what cannot be drawn, or has no extra for it, before anything is replayed."""
    from shardq.whatif.picture import FORMATS

    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"--plot writes {' or '.join(FORMATS)}, not {str(path)!r}")


def _plot(found: Comparison, args: Args) -> None:
    from shardq.whatif.picture import save

    save(found, args.plot, within=args.within, objective=args.objective / 100)
