"""instructions: what each verb costs the server in each mode, counted by callgrind, whatever else the machine does.

The modes are those of `benchmarks.modes`: each feature, single calls and batches, an empty queue and one with a
backlog, beside plain use and beside another commit (`--base`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from benchmarks.modes.contest import Contest, Failed, contest
from benchmarks.modes.cycles import VERBS, WITH_ACK
from benchmarks.modes.matrix import MODES
from benchmarks.modes.mode import SUM, Mode
from benchmarks.report import Table
from benchmarks.settings import Place

SHOWN: Final = (*VERBS, SUM, WITH_ACK)
Counts = Mapping[str, float]
"""By verb, thousands of instructions a message."""


def run(where: Place) -> Iterator[Table]:
    """Single calls, then batches."""
    chosen = where.settings
    modes = [each for each in MODES.values() if not each.memory]
    with contest(chosen) as ground:
        for batch in dict.fromkeys((1, chosen.batch)):
            there = [
                each
                for each in modes
                if each.bounds(batch) and any(map(each.name.__contains__, chosen.only.split(",")))
            ]
            if there:
                yield _table(where, ground, there, batch)


def _table(where: Place, ground: Contest, modes: Sequence[Mode], batch: int) -> Table:
    *earlier, present = [one.name for one in ground.contenders]
    found = _counted(ground, modes, batch)
    shape = "one message a call" if batch == 1 else f"batches of {batch}"
    return Table(
        f"instructions-{batch}",
        f"Thousands of instructions of the server, a message, {shape}",
        where.described("callgrind"),
        ("mode", *SHOWN, "of the mode beside", *(f"{verb} of {name}" for name in earlier for verb in (*VERBS, SUM))),
        [_row(mode, found, present, earlier) for mode in modes],
        data={name: {mode: dict(own) for mode, own in by_mode.items()} for name, by_mode in found.items()},
    )


def _counted(ground: Contest, modes: Sequence[Mode], batch: int) -> Mapping[str, dict[str, Counts]]:
    """By contender and mode, and with the modes that stand beside; without those that failed."""
    found: dict[str, dict[str, Counts]] = {one.name: {} for one in ground.contenders}
    for mode in {each.name: each for one in modes for each in (MODES.get(one.beside, one), one)}.values():
        try:
            for name, spent in ground.instructions(mode, batch).items():
                found[name][mode.name] = _in_all(spent)
        except Failed as error:
            print(f"{mode.name}: {error}", file=sys.stderr, flush=True)
    return found


def _in_all(spent: Mapping[str, float]) -> Counts:
    counts = {verb: amount / 1000 for verb, amount in spent.items()}
    if all(verb in counts for verb in VERBS):
        counts[SUM] = sum(counts[verb] for verb in VERBS)
    return counts


def _row(
    mode: Mode, found: Mapping[str, Mapping[str, Counts]], present: str, earlier: Sequence[str]
) -> tuple[str, ...]:
    own = found[present].get(mode.name, {})
    beside = found[present].get(mode.beside, {})
    cells = [f"{own[verb]:,.1f}" if verb in own else "" for verb in SHOWN]
    ratios = [_of(own, found[name].get(mode.name, {}), verb) for name in earlier for verb in (*VERBS, SUM)]
    return (mode.name, *cells, _of(own, beside, SUM), *ratios)


def _of(own: Counts, other: Counts, verb: str) -> str:
    return f"{own[verb] / other[verb]:.2f}" if verb in own and verb in other else ""
