"""edge: producers without access to Redis, over links and by kind of data; and a gateway beside Redis itself.

Messages go over a modelled link (`link`), beside gRPC that compresses each message and beside HTTP requests over 54
connections. Each message must be in the queue once. The time is that from the first message to the last ack.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from benchmarks.report import Table
from benchmarks.settings import Place


def run(where: Place) -> Iterator[Table]:
    """All tables, or those that `--only` names; with `--quick` not those of slow links."""
    from benchmarks.edge.gateway import beside_redis  # modules of this package are processes, too, and need none of it
    from benchmarks.edge.sizes import by_kind

    with tempfile.TemporaryDirectory() as folder:
        tables: dict[str, Callable[[], Iterable[Table]]] = {
            "kinds": lambda: by_kind(where, Path(folder)),
            "gateway": lambda: [beside_redis(where)],
        }
        for name, made in tables.items():
            if any(word in name for word in where.settings.only.split(",")):
                yield from made()
