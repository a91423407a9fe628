"""modes: the server's CPU of each way to use a queue, over plain use, and beside an earlier commit.

A mode is one row: its messages are written, read and acked, one at a time and in batches, and so are those of the plain
mode that it stands beside, in turns. `matrix` lists the modes with their bounds; to add one, add a row there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.report import Table
    from benchmarks.settings import Place


def run(where: Place) -> Iterator[Table]:
    """All tables."""
    from benchmarks.modes.tables import run  # agents run modules of this package with the shardq of another checkout

    return run(where)
