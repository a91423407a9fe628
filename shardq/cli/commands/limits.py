"""`shardq limits`: show or change the limits of shard keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import asdict

from shardq.cli.declared.changes import named
from shardq.cli.exits import UsageError
from shardq.cli.output import say
from shardq.cli.parsing import Args, add_queue, add_yes, argument, command, takes
from shardq.cli.shell import Shell
from shardq.cli.table import draw
from shardq.cli.text import bytes_fields, ends_at, json_line, shown_key
from shardq.client import Queue
from shardq.model import Limits, Plan
from shardq.sharding import key_bytes

Key = str | bytes
Change = tuple[str, Callable[[], object]]
"""What will be changed, in words, and how."""
NAMES: Final = ("max_in_flight", "rate", "burst")

ABOUT = """A shard key (or a parent) may have a cap of messages in flight, and a rate of deliveries per second with a
burst. Messages beyond that wait, and delay nobody else. A limit that is not named is as the settings of the queue say;
0 is no limit. The limits of every other shard key, and those of the whole queue, are settings: `shardq configure`. A
plan is limits and a weight by name, which many shard keys share: changes of the plan hold for all of them. The list
also shows what is paused."""

EXAMPLES = """  shardq limits jobs
  shardq limits jobs acct-7 max_in_flight=3 rate=10 burst=20 --yes
  shardq limits jobs acct-7 --none --yes
  shardq limits jobs --set-plan gold max_in_flight=20 rate=50 weight=3 --yes
  shardq limits jobs acct-7 --plan gold --yes
  shardq limits jobs --delete-plan gold --yes"""


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@argument("words", metavar="KEY NAME=NUMBER", nargs="*", help="the shard key, and all limits it is to have")
@argument("--none", action="store_true", help="it has none of its own any more")
@argument("--plan", metavar="PLAN", help="it is on this plan")
@argument("--set-plan", metavar=("PLAN", "NAME=NUMBER"), nargs="+", help="make or change this plan")
@argument("--delete-plan", metavar="PLAN", help="delete this plan")
@takes(add_yes)
def run(args: Args, shell: Shell) -> None:
    """Change what was named, then show all."""
    change = _change_of(args)
    queue, _ = shell.existing(args.queue)
    if change is not None:
        text, make = change(queue)
        shell.confirm(f"{text} in queue {args.queue!r}?", yes=args.yes)
        make()
    show(args.queue, queue.limits(), queue.paused(), queue.plans(), shell)


def _change_of(args: Args) -> Callable[[Queue], Change] | None:
    """Return how to change what was named, None if nothing was. UsageError if it was not named right."""
    if args.set_plan or args.delete_plan:
        if args.none or args.plan or (args.set_plan and args.delete_plan):
            raise UsageError(
                "--set-plan and --delete-plan stand alone: change the limits of a shard key by another command"
            )
        if args.words:
            raise UsageError("--set-plan and --delete-plan are of no shard key: --set-plan gold rate=50")
        if args.delete_plan:
            return partial(_plan_deleted, args.delete_plan)
        name, *words = args.set_plan
        return partial(_plan_set, name, _values(words, (*NAMES, "weight")))
    if not args.words:
        if args.none or args.plan:
            raise UsageError("name the shard key")
        return None
    key, *words = args.words
    if sum((bool(words), args.none, bool(args.plan))) != 1:
        raise UsageError("name the limits, such as max_in_flight=3 rate=10, or --plan, or --none")
    wanted = args.plan or Limits(**_values(words, NAMES))
    return partial(_limits_set, key, wanted)


def _plan_deleted(name: str, queue: Queue) -> Change:
    return f"Delete plan {name}", partial(queue.delete_plan, name)


def _plan_set(name: str, values: dict[str, Any], queue: Queue) -> Change:
    before = queue.plans().get(name)
    text = f"Make plan {name} with" if before is None else f"Change plan {name} from {named(before)} to"
    return f"{text} {named(Plan(**values))}", partial(queue.set_plan, name, **values)


def _limits_set(key: str, wanted: Limits | str, queue: Queue) -> Change:
    before = queue.limits().get(key, Limits())
    text = f"Change the limits of {key} from {named(before)} to {named(wanted)}"
    return text, partial(queue.set_limits, {key: wanted})


def show(
    name: str,
    limits: Mapping[Key, Limits | str],
    paused: Mapping[Key | None, float],
    plans: Mapping[str, Plan],
    shell: Shell,
) -> None:
    """Print all limits, pauses and plans."""
    keys = sorted({*limits, *(key for key in paused if key is not None)}, key=key_bytes)
    found = [(key, limits.get(key, Limits()), paused.get(key)) for key in keys]
    if shell.json:
        fields = [
            {**bytes_fields("shard_key", key), **_fields(each), "paused_until": _until(end)} for key, each, end in found
        ]
        table = {plan: asdict(each) for plan, each in plans.items()}
        say(json_line({"queue": name, "paused_until": _until(paused.get(None)), "limits": fields, "plans": table}))
        return
    rows = [(shown_key(key), *_cells(each, plans), ends_at(end)) for key, each, end in found]
    if None in paused:
        rows.insert(0, ("(the whole queue)", "", "", "", "", ends_at(paused[None])))
    if rows:
        draw(("shard key", "plan", *NAMES, "paused until"), rows, right=frozenset(NAMES))
    else:
        say("no shard key has limits of its own, and nothing is paused")
    if plans:
        say("")
        table_rows = [
            (plan, *map(_number, _numbers(each)), f"{each.weight}", f"{each.tenants:,}") for plan, each in plans.items()
        ]
        columns = (*NAMES, "weight", "tenants")
        draw(("plan", *columns), table_rows, right=frozenset(columns))


def _fields(limits: Limits | str) -> dict[str, Any]:
    return {"plan": limits, **asdict(Limits())} if isinstance(limits, str) else {"plan": None, **asdict(limits)}


def _cells(limits: Limits | str, plans: Mapping[str, Plan]) -> tuple[str, ...]:
    """Return the plan, and the limits that are in force."""
    if isinstance(limits, str):
        return limits, *map(_number, _numbers(plans.get(limits, Limits())))
    return "", *map(_number, _numbers(limits))


def _values(words: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """The limits that were typed, NAME=NUMBER; UsageError if one is no number, or has another name."""
    values: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise UsageError(f"limits are NAME=NUMBER, not {word!r}")
        if name not in names:
            raise UsageError(f"there is no limit {name!r}; the limits are {', '.join(names)}")
        try:
            values[name] = float(text) if name == "rate" else int(text)
        except ValueError:
            raise UsageError(f"{name} must be a number, not {text!r}") from None
    return values


def _numbers(limits: Limits) -> tuple[float | None, ...]:
    return tuple(getattr(limits, name) for name in NAMES)


def _number(number: float | None) -> str:
    return "" if number is None else f"{number:,g}" if number else "no limit"


def _until(end: float | None) -> float | str | None:
    return "resumed" if end is not None and math.isinf(end) else end
