"""`shardq limits`: show or change the limits of shard keys."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from shardq.cli.declared.changes import named
from shardq.cli.exits import FAILED, OK, UsageError
from shardq.cli.output import say
from shardq.cli.parsing import Commands, add_queue, add_yes, command, header
from shardq.cli.shell import Shell
from shardq.cli.table import draw
from shardq.cli.text import bytes_fields, ends_at, json_line, shown_key
from shardq.model import Limits
from shardq.sharding import key_bytes

Key = str | bytes
NAMES: Final = ("max_in_flight", "rate", "burst")

ABOUT = """A shard key (or a parent) may have a cap of messages in flight, and a rate of deliveries per second with a
burst. What is beyond waits, and delays nobody else. A limit that is not named is as the settings of the queue say; 0 is
no limit. The limits of every other shard key, and those of the whole queue, are settings: `shardq configure`. The list
also shows what is paused."""

EXAMPLES = """  shardq limits jobs
  shardq limits jobs acct-7 max_in_flight=3 rate=10 burst=20 --yes
  shardq limits jobs acct-7 --none --yes"""


def register(commands: Commands) -> None:
    """Add the parser."""
    parser = command(commands, "limits", run, "show or change limits of shard keys", about=ABOUT, examples=EXAMPLES)
    add_queue(parser)
    parser.add_argument("shard_key", metavar="KEY", nargs="?", help="the shard key whose limits to change")
    parser.add_argument("limits", metavar="NAME=NUMBER", type=header, nargs="*", help="all limits that it is to have")
    parser.add_argument("--none", action="store_true", help="it has none of its own any more")
    add_yes(parser)


def run(args: argparse.Namespace, shell: Shell) -> int:
    """Change the limits that were given, then show all."""
    if args.shard_key and bool(args.limits) == args.none:
        raise UsageError("name the limits, such as max_in_flight=3 rate=10, or --none")
    queue, _ = shell.existing(args.queue)
    if args.shard_key:
        wanted = limits_of(dict(args.limits))
        before = queue.limits().get(args.shard_key, Limits())
        change = f"of {args.shard_key} from {named(before)} to {named(wanted)}"
        if not shell.confirm(f"Change the limits {change} in queue {args.queue!r}?", yes=args.yes):
            return FAILED
        queue.set_limits({args.shard_key: wanted})
    show(args.queue, queue.limits(), queue.paused(), shell)
    return OK


def show(name: str, limits: Mapping[Key, Limits], paused: Mapping[Key | None, float], shell: Shell) -> None:
    """Print all limits and pauses."""
    keys = sorted({*limits, *(key for key in paused if key is not None)}, key=key_bytes)
    found = [(key, limits.get(key, Limits()), paused.get(key)) for key in keys]
    if shell.json:
        fields = [
            {**bytes_fields("shard_key", key), **asdict(each), "paused_until": _until(end)} for key, each, end in found
        ]
        say(json_line({"queue": name, "paused_until": _until(paused.get(None)), "limits": fields}))
        return
    rows = [(shown_key(key), *map(_number, _numbers(each)), ends_at(end)) for key, each, end in found]
    if None in paused:
        rows.insert(0, ("(the whole queue)", "", "", "", ends_at(paused[None])))
    if rows:
        draw(("shard key", *NAMES, "paused until"), rows, right=frozenset(NAMES))
    else:
        say("no shard key has limits of its own, and nothing is paused")


def limits_of(named: dict[str, str]) -> Limits:
    """The limits that were typed; UsageError if one is no number, or has another name."""
    values: dict[str, Any] = {}
    for name, text in named.items():
        if name not in NAMES:
            raise UsageError(f"there is no limit {name!r}; the limits are {', '.join(NAMES)}")
        try:
            values[name] = float(text) if name == "rate" else int(text)
        except ValueError:
            raise UsageError(f"{name} must be a number, not {text!r}") from None
    return Limits(**values)


def _numbers(limits: Limits) -> tuple[float | None, ...]:
    return tuple(getattr(limits, name) for name in NAMES)


def _number(number: float | None) -> str:
    return "" if number is None else f"{number:,g}" if number else "no limit"


def _until(end: float | None) -> float | str | None:
    return "resumed" if end is not None and math.isinf(end) else end
