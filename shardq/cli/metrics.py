"""`--metrics`: the numbers of a worker, over all of its processes, for Prometheus.

The process that was started listens. Those below it tell it what they have measured (`shardq.telemetry.pipe`), so one
port has the numbers of all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from shardq.exporter.listener import HttpRequest, Listener, Reply, Route
from shardq.exporter.page import MetricsPage
from shardq.exporter.queues import build
from shardq.exporter.server import ServerNumbers
from shardq.telemetry.family import begin_family, end_family
from shardq.telemetry.measures import begin_tally, end_tally

if TYPE_CHECKING:
    from shardq.cli.shell import Shell


def health(server: ServerNumbers) -> dict[str, Route]:
    """Return the routes that say whether this process lives, and whether Redis answers."""

    def ready(_: HttpRequest) -> Reply:
        return Reply("ready\n") if server.is_ready() else Reply(f"{server.why_not()}\n", status=503)

    return {"/healthz": Reply("alive\n"), "/readyz": ready}


@contextlib.contextmanager
def metrics_on(listen: str, shell: Shell, say: Callable[[str], object]) -> Iterator[None]:
    """Serve the numbers of this process and of those that it starts on *listen*, and *say* so. ConfigError."""
    tally = begin_tally()
    family = begin_family(tally.samples)

    clock = shell.client.clock
    page = MetricsPage(lambda: [build(), *family.samples()], clock)
    listener = Listener(listen, {"/metrics": page, **health(ServerNumbers(shell.client, clock, is_logged=False))})
    listener.open()
    say(f"metrics on {listener.address}")
    try:
        yield
    finally:
        listener.close()
        end_family()
        end_tally()
