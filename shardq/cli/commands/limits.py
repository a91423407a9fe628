"""`shardq limits`: show or change the limits, weights and plans of tenants."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict

from shardq.cli.exits import NothingThere, UsageError
from shardq.cli.filters import tenant_of
from shardq.cli.flags import add_change
from shardq.cli.output import remark, say
from shardq.cli.parsers import meant
from shardq.cli.parsing import Args, add_queue, argument, command, flag, takes
from shardq.cli.shell import Shell, asked_by
from shardq.cli.table import draw, facts
from shardq.cli.text import bytes_fields, duration, ends_at, json_line, shown_key
from shardq.declared.changes import named
from shardq.model import Controls, Limits, Plan
from shardq.model.controls import Control
from shardq.sharding import key_bytes

if TYPE_CHECKING:
    from shardq.client import Queue

Key = str | bytes
Change = tuple[str, Callable[[], object]]
"""A change that will be made, in words, and how."""
NAMES: Final = ("max_in_flight", "rate", "burst")
WEIGHT: Final = "weight"

ABOUT = """A tenant (a shard key or a parent) may have a cap of messages in flight, and a rate of deliveries per second
with a burst. Messages beyond that wait, and delay nobody else. A limit that is not named is as the settings of the
queue say; 0 is no limit. The limits of every other tenant, and those of the whole queue, are settings: `shardq
configure`. While many tenants have messages waiting, one of weight 3 (1 to 100) gets three times the share of one of
weight 1. A plan is limits and a weight by name, which many tenants share: changes of the plan hold for all of them. The
list also shows what is paused."""

EXAMPLES = """  shardq limits jobs
  shardq limits jobs -t acct-7 max_in_flight=3 rate=10 --for 2h --yes
  shardq limits jobs -t acct-7 weight=3 --yes
  shardq limits jobs -t acct-7 --none --yes
  shardq limits jobs --set-plan gold max_in_flight=20 rate=50 weight=3 --yes
  shardq limits jobs -t acct-7 --plan gold --yes
  shardq limits jobs --delete-plan gold --yes"""


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@argument("words", metavar="NAME=NUMBER", nargs="*", help="all limits that it is to have, or its weight")
@flag("tenant")
@flag("for", " (never)")
@argument("--none", action="store_true", help="remove its own limits")
@argument("--plan", metavar="PLAN", help="put it on this plan")
@argument("--set-plan", metavar="PLAN", help="make or change this plan")
@argument("--delete-plan", metavar="PLAN", help="delete this plan")
@takes(add_change)
def run(args: Args, shell: Shell) -> None:
    """Change what was named, then show all."""
    change = _change_of(args)
    queue, _ = shell.existing(args.queue)
    if change is not None:
        text, make = change(queue)
        lasting = f" for {duration(args.seconds)}" if args.seconds else ""
        if not shell.goes_on(args, f"{text} in queue {args.queue!r}{lasting}", {"queue": args.queue, "change": text}):
            return
        make()
    found = queue.controls()
    show(args.queue, found, shell)
    if not (found.limits or found.weights or found.paused or found.plans):
        told = f"no tenant of queue {args.queue!r} has limits or a weight of its own, and nothing is paused"
        if change is None:
            raise NothingThere(told)
        remark(told)


def _change_of(args: Args) -> Callable[[Queue], Change] | None:
    """Return how to change what was named, None if nothing was. UsageError if it was not named right."""
    if args.set_plan or args.delete_plan:
        return _change_of_plan(args)
    key = tenant_of(args)
    if key is None:
        if args.words or args.none or args.plan or args.seconds:
            raise UsageError("name the tenant, as in --tenant acct-7")
        return None
    if sum((bool(args.words), args.none, bool(args.plan))) != 1:
        raise UsageError("name the limits, such as max_in_flight=3 rate=10, or --plan, or --none")
    values = _values(args.words, (*NAMES, WEIGHT))
    weight = values.pop(WEIGHT, None)
    wanted = args.plan or (Limits(**values) if values or args.none else None)
    how = {**asked_by(args), "seconds": args.seconds}
    return partial(_tenant_set, key, wanted, weight, how)


def _change_of_plan(args: Args) -> Callable[[Queue], Change]:
    if args.none or args.plan or args.tenant or args.seconds or (args.set_plan and args.delete_plan):
        raise UsageError("--set-plan and --delete-plan stand alone: change the limits of a tenant by another command")
    if args.delete_plan:
        if args.words:
            raise UsageError("--delete-plan takes no limits")
        return partial(_plan_deleted, args.delete_plan, asked_by(args))
    return partial(_plan_set, args.set_plan, _values(args.words, (*NAMES, WEIGHT)), asked_by(args))


def _plan_deleted(name: str, how: Mapping[str, Any], queue: Queue) -> Change:
    return f"Delete plan {name}", partial(queue.delete_plan, name, **how)


def _plan_set(name: str, values: dict[str, Any], how: Mapping[str, Any], queue: Queue) -> Change:
    before = queue.plans().get(name)
    text = f"Make plan {name} with" if before is None else f"Change plan {name} from {named(before)} to"
    return f"{text} {named(Plan(**values))}", partial(queue.set_plan, name, **values, **how)


def _tenant_set(
    key: Key, wanted: Limits | str | None, weight: int | None, how: Mapping[str, Any], queue: Queue
) -> Change:
    texts, name = [], shown_key(key)
    if wanted is not None:
        texts.append(f"the limits of {name} from {named(queue.limits().get(key, Limits()))} to {named(wanted)}")
    if weight is not None:
        texts.append(f"the weight of {name} from {queue.weights().get(key, 1)} to {weight}")

    def make() -> None:
        if weight is not None:
            queue.set_weights({key: weight}, **how)
        if wanted is not None:
            queue.set_limits({key: wanted}, **how)

    return f"Change {' and '.join(texts)}", make


def show(name: str, found: Controls, shell: Shell) -> None:
    """Print all limits, weights, pauses and plans, and who gave them."""
    keys = sorted({*found.limits, *found.weights, *(key for key in found.paused if key is not None)}, key=key_bytes)
    if shell.json:
        say(json_line({
            "queue": name, "paused_until": _until(found.paused.get(None)), "paused": _fields(found.paused.get(None)),
            "limits": [_row_fields(found, key) for key in keys],
            "plans": {plan: asdict(each) for plan, each in found.plans.items()},
        }))  # fmt: skip
        return
    rows = [_row(found, key) for key in keys]
    if None in found.paused:
        rows.insert(0, ("(the whole queue)", "", "", "", "", "", ends_at(found.paused[None].until)))
    if rows:
        headers = ("tenant", "plan", "in flight", "rate", "burst", WEIGHT, "paused until")
        draw(headers, rows, right=frozenset(headers[2:6]), folded={"tenant": 10, "plan": 6, "paused until": 11})
    if found.plans:
        say("")
        plans = [
            (plan, *map(_number, _numbers(each)), str(each.weight), f"{each.tenants:,}")
            for plan, each in found.plans.items()
        ]
        columns = ("plan", "in flight", "rate", "burst", WEIGHT, "tenants")
        draw(columns, plans, right=frozenset(columns[1:]), folded={"plan": 6})
    _say_who(found)


def _say_who(found: Controls) -> None:
    """Say who gave what, until when and why, where anything of that is known."""
    lines = []
    for what, controls in (("paused", found.paused), ("limits", found.limits), ("weight", found.weights)):
        for key, each in controls.items():
            ends = "" if math.isinf(each.until) or what == "paused" else f"until {ends_at(each.until)}"
            by = f"by {each.by}" if each.by else ""
            since = "" if each.since is None else f"since {ends_at(each.since)}"
            if told := ", ".join(filter(None, (by, since, ends, each.note))):
                whose = "the whole queue" if key is None else shown_key(key)
                lines.append((f"{whose}: {what}", told))
    if lines:
        say("")
        say(facts(lines))


def _row(found: Controls, key: Key) -> tuple[str, ...]:
    limits, weight, paused = found.limits.get(key), found.weights.get(key), found.paused.get(key)
    return (
        shown_key(key), *_cells(Limits() if limits is None else limits.limits, found.plans),
        "" if weight is None else str(weight.weight), "" if paused is None else ends_at(paused.until),
    )  # fmt: skip


def _row_fields(found: Controls, key: Key) -> dict[str, Any]:
    limits, weight, paused = found.limits.get(key), found.weights.get(key), found.paused.get(key)
    own = Limits() if limits is None else limits.limits
    return {
        **bytes_fields("shard_key", key),
        "plan": own if isinstance(own, str) else None, **asdict(Limits() if isinstance(own, str) else own),
        "weight": 1 if weight is None else weight.weight, "paused_until": _until(paused),
        "limited": _fields(limits), "weighted": _fields(weight), "paused": _fields(paused),
    }  # fmt: skip


def _fields(control: Control | None) -> dict[str, Any] | None:
    """The author, the reason, the beginning and the end."""
    if control is None:
        return None
    until = None if math.isinf(control.until) else control.until
    return {"by": control.by, "note": control.note, "since": control.since, "until": until}


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
            near = meant(name, names)
            hint = f": did you mean {near}?" if near else f"; the limits are {', '.join(names)}"
            raise UsageError(f"there is no limit {name!r}{hint}")
        try:
            values[name] = float(text) if name == "rate" else int(text)
        except ValueError:
            raise UsageError(f"{name} must be a number, not {text!r}") from None
    return values


def _numbers(limits: Limits) -> tuple[float | None, ...]:
    return tuple(getattr(limits, name) for name in NAMES)


def _number(number: float | None) -> str:
    return "" if number is None else f"{number:,g}" if number else "no limit"


def _until(control: Control | None) -> float | str | None:
    return None if control is None else "resumed" if math.isinf(control.until) else control.until
