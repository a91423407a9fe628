"""The tables of the benchmark `edge`."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from benchmarks.edge.contest import Result, contest
from benchmarks.edge.gateway import beside_redis
from benchmarks.edge.link import Quality
from benchmarks.edge.metrics import Site
from benchmarks.edge.producer import CONNECTIONS, write_file
from benchmarks.edge.sizes import by_kind
from benchmarks.edge.strangers import beside_strangers
from benchmarks.report import Table, Target, times
from benchmarks.settings import Place

MB: Final = 1e6
SIZE: Final = 140_000  # bytes for each message of the settings: 700 MB if nothing else is said
NAMES = {
    "sync": f"{CONNECTIONS} connections, one message at a time",
    "plain": "1 connection, a window",
    "zstd": "1 connection, a window, zstd",
    "trained": "1 connection, a window, zstd and a dictionary",
}
QUALITIES = {
    "1 ms": Quality(round_trip=0.001),
    "100 ms": Quality(round_trip=0.1),
    "300 ms": Quality(round_trip=0.3),
    "20 ms, 1 % loss": Quality(loss=0.01),
    "150 ms, 1 Gbit/s": Quality(1e9, 0.15),
}


def run(where: Place) -> Iterator[Table]:
    """All tables, or those that `--only` names; with `--quick` not those of other links."""
    size = SIZE * where.settings.messages
    with tempfile.TemporaryDirectory() as folder:
        tables: dict[str, Callable[[], Iterable[Table]]] = {
            "metrics": lambda: [_main(where, Path(folder), size)],
            "links": lambda: [_links(where, Path(folder), size / 10)] if where.settings.seconds >= 10 else [],
            "kinds": lambda: by_kind(where, Path(folder)),
            "gateway": lambda: [beside_redis(where)],
            "strangers": lambda: [beside_strangers(where)],
        }
        for name, made in tables.items():
            if any(word in name for word in where.settings.only.split(",")):
                yield from made()


def _main(where: Place, folder: Path, size: float) -> Table:
    quality = Quality()
    count, size = write_file(folder / "messages", Site(seed=where.settings.seed).messages(int(size)))
    results = {kind: contest(where.url, kind, folder / "messages", count, quality) for kind in NAMES}
    first = results["sync"].seconds
    rows: list[tuple[str, ...]] = [
        (
            NAMES[kind],
            f"{each.seconds:,.1f} s",
            times(first / each.seconds),
            f"{each.up / MB:,.0f} MB",
            f"{8 * each.up / each.seconds / quality.bandwidth:.0%}",
            f"{1000 * each.cpu / (size / MB):.0f} ms",
            f"{1000 * each.gateway_cpu / (size / MB):.0f} ms",
            f"{each.peak / MB:.0f} MB",
            f"{each.gateway_peak / MB:.0f} MB",
        )
        for kind, each in results.items()
    ]
    best = results["trained"]
    note = (
        f"the link is the limit: it was used by {8 * best.up / best.seconds / quality.bandwidth:.0%}, by the first by "
        f"{8 * results['sync'].up / first / quality.bandwidth:.0%}, and {size / best.up:.1f} bytes went for each on it"
    )
    return Table(
        "edge",
        "Metrics over a link of 40 Mbit/s and 20 ms",
        f"{_described(where)}; {count:,} messages, {size / MB:,.0f} MB; CPU for each MB of payload",
        ("", "time", "speed-up", "bytes sent", "of the link", "CPU", "gateway's CPU", "memory", "gateway's memory"),
        rows,
        [
            Target(
                "one connection with zstd and a dictionary, of 54 synchronous ones", first / best.seconds, 10, note=note
            )
        ],
        {kind: _data(each) for kind, each in results.items()},
    )


def _links(where: Place, folder: Path, size: float) -> Table:
    count, size = write_file(folder / "messages", Site(seed=where.settings.seed).messages(int(size)))
    results = {
        (name, kind): contest(where.url, kind, folder / "messages", count, quality)
        for name, quality in QUALITIES.items()
        for kind in NAMES
    }
    rows = []
    for name in QUALITIES:
        first = results[name, "sync"].seconds
        others = [results[name, kind].seconds for kind in NAMES if kind != "sync"]
        rows.append((name, f"{first:,.1f} s", *(f"{each:,.1f} s, {times(first / each)}" for each in others)))
    return Table(
        "edge_links",
        "The same over other links, of 40 Mbit/s where nothing else is said",
        f"{_described(where)}; {count:,} messages, {size / MB:,.0f} MB; speed-up against the first",
        ("round trip", f"{CONNECTIONS} synchronous", "window", "window, zstd", "window, zstd, dictionary"),
        rows,
        data={f"{name}/{kind}": _data(each) for (name, kind), each in results.items()},
    )


def _described(where: Place) -> str:
    machine = f"{os.cpu_count()} cores ({platform.machine()}), load {os.getloadavg()[0]:.1f}"
    return f"{where.server.name}, no AOF; {machine}, Python {platform.python_version()}; one run"


def _data(each: Result) -> dict[str, object]:
    return {name: getattr(each, name) for name in each.__dataclass_fields__}
