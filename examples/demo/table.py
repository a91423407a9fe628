"""The closing table: the flood beside all others, then a row for each of the largest of these."""

from rich.box import SIMPLE_HEAD
from rich.progress_bar import ProgressBar
from rich.table import Table

from examples.demo.figures import percentile, seconds, short
from examples.demo.waits import Waits

ROWS = 6  # of the others, so that all lines fit one screen
NAME, BAR = 24, 20  # columns, so that the table fits into 80


def draw(waits: Waits) -> Table:
    """The table of all tenants."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("package (tenant)", no_wrap=True)
    for name in ("jobs", "wait p50", "p99"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")

    def add(name: str, values: list[float], style: str = "") -> None:
        median, high = percentile(values, 0.5), percentile(values, 0.99)
        bar = ProgressBar(percentile(waits.flood, 0.5), median, BAR, complete_style=style, finished_style=style)
        cells = (f"{len(values):,}", seconds(median), seconds(high))
        table.add_row(name, *cells, bar if style else None, style=style)

    tenants = {name: values for name, values in waits.by_tenant.items() if name != waits.noisy}
    largest = sorted(tenants, key=lambda name: (-len(tenants[name]), name))
    add(f"{short(waits.noisy)} (floods)", waits.flood, "bold yellow")
    add(f"all {len(largest):,} others", waits.others, "bold green")
    table.add_section()
    for name in largest[:ROWS]:
        add(short(name, NAME), tenants[name])
    if rest := largest[ROWS:]:
        add(f"{len(rest):,} smaller ones", [wait for name in rest for wait in tenants[name]])
    return table
