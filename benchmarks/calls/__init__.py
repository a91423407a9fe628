"""calls: what a call costs client and server, beside redis-py, a bare stream, huey and the prior art.

One message a call and batches; with a backlog; messages of 8 kB that are held back; many threads and tasks on one
client. Each contender is a process of its own. `--only` takes the tables whose names have one of its texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.report import Table
    from benchmarks.settings import Place


def run(place: Place) -> Iterator[Table]:
    """All tables."""
    from benchmarks.calls.tables import run  # modules of this package run in the environments of contenders, too

    return run(place)
