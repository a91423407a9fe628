"""timing: the timing wheel and the purgatory on a workload of requests, compared with what one would use instead.

`python -m benchmarks.timing [--quick] [--plot FOLDER] [TABLE ...]`. The cost per request is CPU time on a virtual
clock; the rates are reached in real time. Contenders run in rounds, each in a process of its own, and a ratio is the
median of the ratios of the rounds: the machine may be shared.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.report import Table
from benchmarks.timers.blocked import blocked
from benchmarks.timers.costs import phases, replay
from benchmarks.timers.leases import leases
from benchmarks.timers.rates import lateness, rates
from benchmarks.timers.rounds import QUICK, Size
from benchmarks.timers.waits import purgatory

TABLES: dict[str, Callable[[Size], list[Table]]] = {
    "replay": replay, "phases": phases, "rates": rates, "lateness": lateness, "purgatory": purgatory,
    "leases": leases, "blocked": blocked,
}  # fmt: skip


def tiny(requests: int) -> Size:
    """A size that only shows that the benchmark works."""
    return Size(requests, rounds=1, seconds=0.05, rates=(25_000,), late=20)


def run(place: Any) -> list[Table]:
    """For `python -m benchmarks`: the size by the place's settings."""
    quick = place.settings.messages < 5000
    return [table for make in TABLES.values() for table in make(QUICK if quick else Size())]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.timing", description=__doc__)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(TABLES)}; all by default")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    parser.add_argument("--requests", type=int, help="how many, with --quick for everything else")
    parser.add_argument("--plot", type=Path, metavar="FOLDER", help="draw the rates there (needs matplotlib)")
    parser.add_argument("--json", type=Path, metavar="FOLDER", help="write the numbers of every round there")
    asked = parser.parse_args()
    size = QUICK if asked.quick or asked.requests else Size()
    if asked.requests:
        size = tiny(asked.requests)
    for name in asked.tables or TABLES:
        for table in TABLES[name](size):
            print(table.text(), flush=True)
            if asked.json:
                asked.json.mkdir(parents=True, exist_ok=True)
                (asked.json / f"{table.name}.json").write_text(json.dumps(table.json(), indent=1) + "\n")
            if asked.plot:
                from benchmarks.plots import draw

                print(draw(table, asked.plot))


if __name__ == "__main__":
    main()
