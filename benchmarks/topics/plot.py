"""The seed's chart: the time of the whole work by the number of threads."""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import Table


def draw(table: Table, folder: Path) -> Path:
    """Write `table`, one of `routing-threads-...`, as a picture; its path."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams |= {"svg.hashsalt": "shardq", "figure.constrained_layout.use": True}
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4))
    for name, times in table.data["found"].items():
        axes.plot(list(times), list(times.values()), "o-", label=name)
    axes.set(xlabel="threads", ylabel="ms for the whole work", xscale="log", yscale="log")
    axes.legend()
    figure.suptitle(f"{table.title}\n{table.context}", fontsize=7)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{table.name}.svg"
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path
