"""The tables: a row for each mode, which says at a glance whether it costs more than it may."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Final

from benchmarks.modes.contest import Contest, Costs, Failed, contest
from benchmarks.modes.cost import Cost
from benchmarks.modes.cycles import VERBS, WITH_ACK
from benchmarks.modes.matrix import MODES
from benchmarks.modes.mode import SUM, Mode, Most
from benchmarks.modes.ratios import Ratios, said
from benchmarks.report import Table, us
from benchmarks.settings import Place

COLUMNS: Final = (
    *("mode", *VERBS, SUM, "half of the rounds", "bound", "", WITH_ACK),
    *("a message", "in scripts", "commands"),
)
SHOWN: Final = (*VERBS, SUM, WITH_ACK)
FAILED: Final = "FAILED"
Found = dict[str, Costs]
"""By mode; those that failed are not in it."""
Row = tuple[str, ...]


def run(where: Place) -> Iterator[Table]:
    """Single messages, then batches, then memory."""
    chosen = where.settings
    modes = [mode for mode in MODES.values() if any(word in mode.name for word in chosen.only.split(","))]
    keeping = [mode for mode in modes if mode.memory]
    with contest(chosen) as ground:
        for batch in dict.fromkeys((1, chosen.batch)):
            there = [mode for mode in modes if mode.bounds(batch) and not mode.memory]
            if there:
                yield from _tables(where, ground, there, batch, _measured(ground, there, batch))
        if keeping:
            yield _memory(where, ground, keeping)


def _measured(ground: Contest, modes: Sequence[Mode], batch: int) -> Found:
    found: Found = {}
    for mode in modes:
        try:
            found[mode.name] = ground.take(mode, batch)
        except Failed as error:
            print(f"{mode.name}, {_shape(batch)}: {error}", file=sys.stderr, flush=True)
    return found


def _shape(batch: int) -> str:
    return "one message a call" if batch == 1 else f"batches of {batch}"


def _tables(where: Place, ground: Contest, modes: Sequence[Mode], batch: int, found: Found) -> Iterator[Table]:
    first, *others = [one.name for one in ground.contenders]
    for name in others or [first]:
        rows = [_over_beside(name, mode, batch, found) for mode in modes]
        title = f"{name}: server CPU over that of the mode beside, {_shape(batch)}"
        data = {
            mode: {each: _data(own) for each, own in contenders[name].items()} for mode, contenders in found.items()
        }
        yield Table(f"modes-{name}-{batch}", title, where.described(), COLUMNS, rows, data=data)
    for name in others:
        rows = [_of_first(name, first, mode, batch, found) for mode in modes]
        title = f"{name}: server CPU of that of {first}, {_shape(batch)}"
        data = {mode: {each: _data(costs[each][mode]) for each in (first, name)} for mode, costs in found.items()}
        yield Table(f"modes-{name}-of-{first}-{batch}", title, where.described(), COLUMNS, rows, data=data)


def _memory(where: Place, ground: Contest, modes: Sequence[Mode]) -> Table:
    """The bytes of a message that is kept."""
    rows, data, names = list[Row](), {}, [one.name for one in ground.contenders]
    for mode in modes:
        try:
            data[mode.name] = took = ground.memory(mode)
        except Failed as error:
            print(f"{mode.name}: {error}", file=sys.stderr, flush=True)
            rows.append((mode.name, *[""] * len(names), f"{mode.memory:g} B", FAILED))
            continue
        verdict = "MISSED" if took[names[-1]] > mode.memory else "reached"
        rows.append((mode.name, *(f"{took[name]:,.0f} B" for name in names), f"{mode.memory:g} B", verdict))
    columns = ("mode", *names, "bound", "")
    return Table("modes-memory", "Memory of a message", where.described("one round"), columns, rows, data=data)


def _over_beside(name: str, mode: Mode, batch: int, found: Found) -> Row:
    """A mode over the one that stands beside it; its costs in µs where there is none."""
    bounds = mode.bounds(batch)
    if bounds is None or mode.name not in found:
        return _failed(mode)
    costs = found[mode.name][name]
    own = costs[mode.name]
    if mode.beside:
        return _row(mode.name, Ratios.of(own, costs[mode.beside]), bounds.beside, own)
    cells = [us(_middle(own, verb)) if verb in own[0].cpu else "" for verb in SHOWN]
    return (mode.name, *cells[:-1], "", "", "", cells[-1], *_amounts(own))


def _of_first(name: str, first: str, mode: Mode, batch: int, found: Found) -> Row:
    """A mode of one contender beside that of the first."""
    bounds = mode.bounds(batch)
    if bounds is None or mode.name not in found:
        return _failed(mode)
    own, other = (found[mode.name][each][mode.name] for each in (name, first))
    return _row(mode.name, Ratios.of(own, other), bounds.earlier, own)


def _row(name: str, ratios: Ratios, most: Most, own: Sequence[Cost]) -> Row:
    missed = ratios.missed(most)
    verdict = f"MISSED: {', '.join(missed)}" if missed else "reached" if most else ""
    *cells, with_ack = (ratios.cell(verb) for verb in SHOWN)
    return (name, *cells, ratios.spread(), said(most), verdict, with_ack, *_amounts(own))


def _amounts(own: Sequence[Cost]) -> Row:
    """µs of CPU and in scripts, and commands, of a message that is written, read and acked."""
    verb = SUM if SUM in own[0].cpu else next(iter(own[0].cpu))
    scripts = median(cost.scripts[verb] for cost in own)
    return (us(_middle(own, verb)), us(scripts), f"{median(cost.commands_in_all() for cost in own):.1f}")


def _middle(own: Sequence[Cost], verb: str) -> float:
    return median(cost.cpu[verb] for cost in own)


def _failed(mode: Mode) -> Row:
    return (mode.name, *[""] * len(SHOWN), "", FAILED, *[""] * 3)


def _data(costs: Sequence[Cost]) -> dict[str, Any]:
    """The numbers of every round; the commands of the last one, as those of others are the same."""
    return {
        "cpu": [_rounded(cost.cpu) for cost in costs],
        "scripts": [_rounded(cost.scripts) for cost in costs],
        "commands": {verb: _rounded(found) for verb, found in costs[-1].commands.items()},
    }


def _rounded(found: Mapping[str, float]) -> dict[str, float]:
    return {name: round(amount, 3) for name, amount in found.items()}
