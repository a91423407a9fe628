"""`python -m benchmarks [NAME ...]` prints the figures of each benchmark with their references, from the same run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.publish import publish
from benchmarks.report import Table
from benchmarks.settings import Settings, place

CHOICES = {"aof": ("off", "everysec"), "link": ("tcp", "unix", "both")}
MEANS = {
    "server": "a server program, or `all`: Valkey and Redis, in turn; default: the one that shardq finds",
    "base": "a checkout to compare with, a folder or a commit: instructions, modes",
    "only": "calls, day, edge, instructions, modes, scale, slow, worker: names with one of these texts, by commas",
}
NAMES = (
    "calls", "modes", "service", "slow", "results", "reads", "surveys", "pickup", "expiry", "timing", "beats",
    "day", "flow", "edge", "worker", "orders", "fairness", "routing", "spark", "tasks", "instructions",
    "telemetry", "dashboard", "scale",
)  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    made.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all of them by default")
    made.add_argument("--quick", action="store_true", help="a tenth of the work: for a first look")
    made.add_argument("--json", type=Path, metavar="FOLDER", help="write the numbers of every round there")
    made.add_argument("--plot", type=Path, metavar="FOLDER", help="draw pictures there (needs the extra `bench`)")
    made.add_argument(
        "--publish", type=Path, metavar="PAGES", help="a page, or a folder of some: run what their marks say"
    )
    for item in fields(Settings):
        words: dict[str, Any] = {"type": type(item.default)}
        if item.name in CHOICES:
            words = {"choices": CHOICES[item.name]}
        elif isinstance(item.default, bool):
            words = {"action": "store_const", "const": True}
        said = MEANS.get(item.name, f"default: {item.default}")
        made.add_argument(f"--{item.name.replace('_', '-')}", help=said, **words)
    return made


def run(words: list[str]) -> list[Table]:
    """Run the benchmarks that the command line names; their tables."""
    asked = parser().parse_args(words)
    given = {item.name: value for item in fields(Settings) if (value := getattr(asked, item.name)) is not None}
    settings = replace(Settings().quick() if asked.quick else Settings(), **given)
    tables: list[Table] = []
    for name in asked.names or NAMES:
        if name not in NAMES:
            raise SystemExit(f"there is no benchmark {name!r}: use {', '.join(NAMES)}")
        tables += [table for each in settings.places() for table in _tables(name, each, settings)]
    _keep(tables, asked.json, asked.plot)
    return tables


def _tables(name: str, here: Settings, asked: Settings) -> Iterator[Table]:
    """Those of one benchmark in one place; where several places are asked for, their names say which."""
    with place(here) as where:
        for table in import_module(f"benchmarks.{name}").run(where):
            print(table.text(), flush=True)
            several = asked.server == "all" or asked.link == "both"
            yield replace(table, name=f"{table.name}@{where.product}-{here.link}") if several else table


def _keep(tables: list[Table], numbers: Path | None, pictures: Path | None) -> None:
    for folder in filter(None, (numbers, pictures)):
        folder.mkdir(parents=True, exist_ok=True)
    for table in tables:
        if numbers:
            (numbers / f"{table.name}.json").write_text(json.dumps(table.json(), indent=1) + "\n")
        if pictures:
            from benchmarks.plots import draw

            draw(table, pictures)


def main() -> None:
    asked = parser().parse_args()
    if asked.publish:
        publish(asked.publish, run, asked.names)
    else:
        run(sys.argv[1:])


if __name__ == "__main__":
    main()
