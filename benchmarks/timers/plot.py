"""The seed's two charts: the rate that was reached by the rate asked for, and CPU by the rate that was reached."""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import Table


def draw(table: Table, folder: Path) -> Path:
    """Write `table`, one of `timing-rates-...`, as a picture; its path."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams |= {"svg.hashsalt": "shardq", "figure.constrained_layout.use": True}
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
    for name, points in table.data["found"].items():
        reached = [each["rate"] / 1000 for each in points]
        left.plot([each["target"] / 1000 for each in points], reached, "o-", label=name)
        right.plot(reached, [each["cpu"] * 100 for each in points], "o-", label=name)
    left.set(xlabel="asked for, thousand requests/s", ylabel="reached")
    right.set(xlabel="reached, thousand requests/s", ylabel="CPU, %")
    left.legend()
    figure.suptitle(f"{table.title}\n{table.context}", fontsize=7)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{table.name}.svg"
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path
