"""routing: the router's trie beside paho's `MQTTMatcher` and a dict trie under a lock.

`python -m benchmarks.routing [--quick] [--plot FOLDER] [TABLE ...]`. Contenders run in rounds, each in a process of its
own, and a ratio is the median of the ratios of the rounds: the machine may be shared.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import Table
from benchmarks.topics.shapes import shapes
from benchmarks.topics.sizes import sizes
from benchmarks.topics.threads import threads


@dataclass(frozen=True, slots=True)
class Size:
    """How much work a run is."""

    counts: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    rounds: int = 3
    lookups: int = 50_000
    each: int = 1000
    most: int = 100_000


QUICK = Size(counts=(10_000,), lookups=10_000, most=10_000)
TINY = Size(counts=(300,), rounds=1, lookups=100, each=20, most=2000)
TABLES: dict[str, Callable[[Size], list[Table]]] = {
    "sizes": lambda size: sizes(size.counts, size.rounds, size.lookups),
    "threads": lambda size: threads(size.rounds, size.each),
    "shapes": lambda size: shapes(size.rounds, size.most),
}


def run(place: Any) -> list[Table]:
    """For `python -m benchmarks`: the size by the place's settings."""
    size = QUICK if place.settings.messages < 5000 else Size()
    return [table for make in TABLES.values() for table in make(size)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.routing", description=__doc__)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(TABLES)}; all by default")
    parser.add_argument("--quick", action="store_true", help="a hundredth of the work")
    parser.add_argument("--tiny", action="store_true", help="to see that it works")
    parser.add_argument("--plot", type=Path, metavar="FOLDER", help="draw the threads' times there (needs matplotlib)")
    parser.add_argument("--json", type=Path, metavar="FOLDER", help="write the numbers of every round there")
    asked = parser.parse_args()
    size = TINY if asked.tiny else QUICK if asked.quick else Size()
    for name in asked.tables or TABLES:
        for table in TABLES[name](size):
            print(table.text(), flush=True)
            if asked.json:
                asked.json.mkdir(parents=True, exist_ok=True)
                (asked.json / f"{table.name}.json").write_text(json.dumps(table.json(), indent=1) + "\n")
            if asked.plot and name == "threads":
                from benchmarks.plots import draw

                print(draw(table, asked.plot))


if __name__ == "__main__":
    main()
