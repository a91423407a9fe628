"""`shardq server size`: compute how many streams a queue needs, and how many of them a shard needs."""

from __future__ import annotations

from math import fsum
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from shardq.cli.exits import FAILED, OK, UsageError
from shardq.cli.names import read_names
from shardq.cli.output import say
from shardq.cli.parsing import Args, argument, command, flag
from shardq.cli.shell import Shell
from shardq.cli.table import draw, facts
from shardq.cli.text import json_line, printable
from shardq.cli.values import number
from shardq.planner import Assignment, Plan, frontier, plan
from shardq.sharding import MAX_STREAMS

ABOUT = """How many streams keep tenants apart? While --noisy tenants flood their shards, the share --isolation of all
others shall keep a clean stream, one that no flood writes to. With larger shards fewer streams suffice, but each flood
keeps more streams busy, and a message in a clean stream waits for one message of each busy stream. Among the plans
that reach the share, the one with the smallest product of streams and busy streams is chosen. With --streams and
--per-shard it shows what these give. Times and bytes were measured on one small machine (docs/benchmarks.md), so take
them as ratios. This command needs no server.

--names reads shard keys, one per line, and gives each a shard that shares at most --max-overlap streams with any
other. A later name never changes the shard of an earlier one. `shardq assign` stores such shards with a queue."""

EXAMPLES = """  shardq server size --tenants 10000 --noisy 20
  shardq server size --tenants 10000 --noisy 20 --isolation 0.999 --check
  shardq server size --tenants 10000 --noisy 20 --plot plan.svg
  shardq server size --tenants 10000 --noisy 20 --streams 64 --per-shard 4
  shardq server size --streams 64 --per-shard 4 --names t.txt --max-overlap 1"""

SMALL_SIZES = (1, 2, 8)


@command(ABOUT, EXAMPLES)
@flag("tenants", " (10,000)", default=10_000)
@flag("noisy")
@flag("isolation")
@argument("--at-most", type=number(1), metavar="N", default=MAX_STREAMS, help="largest number of streams (4,096)")
@flag("streams", ", to see what it gives")
@flag("per_shard", ", with --streams")
@argument("--check", action="store_true", help="check the odds on a million random tenants (needs numpy)")
@flag("seed", ", of --check and --names")
@flag("plot")
@flag("names", "; print shards for these")
@flag("max_overlap", ", with --names (1)", default=1)
def run(args: Args, shell: Shell) -> int:
    """Choose a plan, print it and draw it."""
    if (args.streams is None) != (args.per_shard is None):
        raise UsageError("--streams needs --per-shard, and --per-shard needs --streams")
    if args.names:
        _assign(args, shell)
        return OK
    chosen, others = _chosen(args)
    _text(chosen, others) if not shell.json else say(json_line(_fields(chosen, others)))
    if args.plot:
        _plot(chosen, others, args.plot)
    return _check(chosen, args.seed, shell) if args.check else OK


def _chosen(args: Args) -> tuple[Plan, list[Plan]]:
    if args.streams:
        given = Plan(args.streams, args.per_shard, args.tenants, args.noisy)
        return given, [given]
    chosen = plan(args.tenants, args.noisy, args.isolation, most=args.at_most)
    return chosen, frontier(args.tenants, args.noisy, args.isolation, most=args.at_most)


def _text(chosen: Plan, others: list[Plan]) -> None:
    columns = (
        "streams",
        "per shard",
        "kept apart",
        "tenants not",
        "busy",
        "same shard",
        "memory",
        "",
    )
    draw(columns, [_row(each, each == chosen) for each in others], right=frozenset(columns))
    cost = chosen.cost
    say()
    say(
        facts(
            [
                ("chosen", f"{chosen.streams:,} streams, {chosen.streams_per_shard} per shard"),
                ("beside the noisy", _shares("{} clean", chosen.clean)),
                ("two tenants", _shares("{} shared", chosen.odds.overlap)),
                *((f"{noisy} noisy", _blast(chosen, noisy)) for noisy in SMALL_SIZES if noisy < chosen.tenants),
                *((f"{lost} lost", _loss(chosen, lost)) for lost in SMALL_SIZES if lost <= chosen.streams),
                ("a read", f"{cost.read:.0f} µs of the server, whatever N is"),
                ("a write", f"{cost.write_keys} keys; its streams cost {cost.write_server:.2f} µs of the server"),
                ("100 writes", f"{cost.batch_keys:.0f} keys in one batch"),
                ("a new tenant", f"{cost.deal:.0f} µs of the client, once"),
            ]
        )
    )


def _row(each: Plan, chosen: bool) -> tuple[str, ...]:
    return (
        f"{each.streams:,}", str(each.streams_per_shard), f"{each.isolation:.3%}", f"{each.without_clean:,.1f}",
        f"{each.busy:,.0f}", f"{each.same_shard:.2g}", f"{each.cost.memory / 1000:,.0f} kB", "<-" if chosen else "",
    )  # fmt: skip


def _shares(words: str, odds: tuple[float, ...]) -> str:
    return ", ".join(f"{words.format(at)} {share:.3g}" for at, share in enumerate(odds) if share >= 1e-12)


def _blast(chosen: Plan, noisy: int) -> str:
    odds = chosen.beside(noisy)
    return f"{fsum(odds[:-1]):.3%} of the tenants share a stream with them, {odds[0]:.3g} all"


def _loss(chosen: Plan, lost: int) -> str:
    odds = chosen.lost(lost)
    return f"{fsum(odds[1:]):.3%} of the tenants lose a stream, {odds[-1]:.3g} all"


def _fields(chosen: Plan, others: list[Plan]) -> dict[str, Any]:
    return {
        **_plan_fields(chosen),
        "clean": chosen.clean,
        "overlap": chosen.odds.overlap,
        "noisy_tenants": {str(noisy): chosen.beside(noisy) for noisy in SMALL_SIZES if noisy < chosen.tenants},
        "lost": {str(lost): chosen.lost(lost) for lost in SMALL_SIZES if lost <= chosen.streams},
        "cost": asdict(chosen.cost),
        "frontier": [_plan_fields(each) for each in others],
    }


def _plan_fields(each: Plan) -> dict[str, Any]:
    names = ("isolation", "without_clean", "busy", "same_shard")
    return asdict(each) | {name: getattr(each, name) for name in names}


def _plot(chosen: Plan, others: list[Plan], path: Path) -> None:
    from shardq.planner.plot import FORMATS, save

    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"--plot writes {' or '.join(FORMATS)}, not {str(path)!r}")
    save(chosen, others, path)


def _check(chosen: Plan, seed: int, shell: Shell) -> int:
    """Compare the odds with random drawings; exit code 1 if they disagree."""
    from shardq.planner.simulation import dealt, drawn

    n, m = chosen.streams, chosen.streams_per_shard
    checks = [*drawn(n, m, chosen.noisy, seed=seed), *dealt(n, m, seed=seed)]
    for each in checks:
        verdict = "agrees" if each.close else "DISAGREES"
        shell.show(
            f"check: {each.name}: {verdict}, {each.error:+.2f} deviations",
            {"check": each.name, "deviations": each.error, "close": each.close},
        )
    return OK if all(each.close for each in checks) else FAILED


def _assign(args: Args, shell: Shell) -> None:
    if args.streams is None:
        raise UsageError("--names needs --streams and --per-shard")
    named = Assignment(args.streams, args.per_shard, max_overlap=args.max_overlap, seed=args.seed)
    for name in read_names(args.names):
        named.add(name)
    for key, dealt in named.items():
        text = key.decode(errors="surrogateescape")
        shell.show(f"{printable(text)}\t{','.join(map(str, dealt))}", {"shard_key": text, "shard": dealt})
