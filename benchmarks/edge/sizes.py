"""Bytes on the wire and CPU, by kind of data: batches, beside gRPC with gzip and one HTTP request for each message."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final

from benchmarks.edge.contest import Result, contest
from benchmarks.edge.kinds import KINDS, messages
from benchmarks.edge.link import Quality
from benchmarks.edge.producer import BEFORE, write_file
from benchmarks.report import Table, Target
from benchmarks.settings import Place, machine

MB: Final = 1e6
SENDERS: Final = {"steady": "batches", "gzip": "gRPC with gzip", "http": "HTTP requests"}
FREE: Final = Quality(bandwidth=1e10, round_trip=0.0)
"""A link that holds nothing up: it only counts."""
LINKS: Final = {f"{rate} Mbit/s": Quality(bandwidth=rate * 1e6) for rate in (1, 10, 40)}
ALONE: Final = 20_000_000
TOTALS: Final = {"1 Mbit/s": 60_000_000, "10 Mbit/s": 120_000_000, "40 Mbit/s": 120_000_000}
"""Bytes that go over a link: some seconds until the producer knows that it is full, and much more after that."""
SMALL: Final = ("log lines", "CSV rows")
FEWER: Final = 4
"""Small messages are the processor's business: so many times fewer bytes of them go over a link."""
LESS: Final = 16
"""The references send so many times less, since they learn nothing."""
MOST: Final = {"log lines": 0.2, "CSV rows": 0.25, "metrics": 0.26, "snapshots": 0.09}
"""The share of their plain size that the messages of each kind may take on the wire."""
MOST_ON_FULL: Final = {**MOST, "metrics": 0.18}


def by_kind(where: Place, folder: Path) -> Iterator[Table]:
    """Tables of all kinds of data: over a link that only counts, and over slow ones."""
    yield _table(where, folder, "alone", FREE, ALONE)
    if where.settings.seconds >= 10:
        for name, quality in LINKS.items():
            yield _table(where, folder, f"over a link of {name} and 20 ms", quality, TOTALS[name])


def _table(where: Place, folder: Path, how: str, quality: Quality, total: int) -> Table:
    rows, targets, data = list[tuple[str, ...]](), list[Target](), {}
    most = MOST if quality is FREE else MOST_ON_FULL
    for kind, sender in product(KINDS, SENDERS):
        wanted = total // FEWER if kind in SMALL and quality is not FREE else total
        wanted = BEFORE + wanted if sender == "steady" else wanted // LESS
        count, size = write_file(folder / "kind", messages(kind, where.settings.seed, wanted))
        result = contest(where.url, sender, folder / "kind", count, quality)
        sent, plain = (result.said["sent"], result.said["plain_bytes"]) if sender == "steady" else (count, size)
        about = f"{kind}, {size / count:,.0f} B", SENDERS[sender]
        figures = _figures(result, sent, plain)
        rows.append((*about, *figures, f"{1e6 * result.gateway_cpu / count:,.0f} µs"))
        data[f"{kind}/{sender}"] = {name: getattr(result, name) for name in result.__dataclass_fields__}
        if sender == "steady":
            targets.append(Target(f"{kind}, of plain", result.up / plain, most[kind], most=True, unit=""))
    less = "" if quality is FREE else f", a {FEWER}th of small messages"
    return Table(
        f"edge_kinds_{quality.bandwidth / 1e6:.0f}" if quality is not FREE else "edge_kinds",
        f"Bytes on the wire and CPU, by kind of data, {how}",
        f"{where.server.name}, no AOF; {machine()}; one run; {BEFORE / MB:.0f} MB of "
        f"each kind went before, for a dictionary, and {total / MB:.0f} MB count{less}; the references store nothing, "
        f"and send a {LESS}th",
        ("data", "sender", "of plain, up", "down", "messages/s", "CPU per message", "its end's"),
        rows,
        targets,
        data,
    )


def _figures(result: Result, sent: int, plain: int) -> tuple[str, ...]:
    return (
        f"{result.up / plain:.3f}", f"{result.down / plain:.3f}", f"{sent / result.seconds:,.0f}",
        f"{1e6 * result.cpu / sent:,.0f} µs",
    )  # fmt: skip
