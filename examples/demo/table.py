"""The closing table: a row per tenant, the largest first, the small ones in one row."""

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from examples.demo.ledger import Job, Ledger

ROWS = 20
NAME = 26  # columns for a name, so that the table fits into 80


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def seconds(value: float) -> str:
    """Such as 8 ms, 340 ms, 4.2 s."""
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def plural(count: int, noun: str) -> str:
    """`1 lease`, `2 leases`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile; 0 of nothing."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def pickups(jobs: Iterable[Job]) -> list[float]:
    """How long each job waited for its first delivery."""
    return [job.takes[0][2] for job in jobs if job.takes]


def draw(ledger: Ledger, noisy: str, killed: str) -> Table:
    """The table of all tenants."""
    tenants: dict[str, list[Job]] = {noisy: []}
    for job in ledger.jobs.values():
        tenants.setdefault(job.tenant, []).append(job)
    order = sorted(tenants, key=lambda name: (name != noisy, -len(tenants[name]), name))
    breath = [ledger.jobs[message_id] for message_id in ledger.acked_unrecorded(killed)]

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold", show_footer=False)
    table.add_column("package (tenant)", no_wrap=True)
    for name in ("jobs", "done", "redelivered", "pick-up p50", "p99"):
        table.add_column(name, justify="right", no_wrap=True)

    def add(name: str, jobs: list[Job], style: str = "") -> None:
        done = sum(bool(job.acked) or job in breath for job in jobs)
        again = sum(count > 1 for job in jobs for _, count, _, _ in job.takes)
        waits = pickups(jobs)
        cells = (f"{len(jobs):,}", f"{done:,}", f"{again:,}" if again else "-")
        table.add_row(name, *cells, seconds(percentile(waits, 0.5)), seconds(percentile(waits, 0.99)), style=style)

    add(f"{_short(noisy, NAME - 9)} (floods)", tenants[noisy], "yellow")
    for name in order[1:ROWS]:
        add(_short(name, NAME), tenants[name])
    if rest := order[ROWS:]:
        add(f"{len(rest):,} smaller ones", [job for name in rest for job in tenants[name]], "dim")
    table.add_section()
    add(f"all {len(order):,}", list(ledger.jobs.values()), "bold")
    return table
