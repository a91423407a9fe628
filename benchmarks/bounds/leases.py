"""Leases that end together: what it takes to take them back and deliver them, and who comes first."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from benchmarks.bounds.clock import Clock
from benchmarks.bounds.full import PAYLOAD, Full, open_queue
from benchmarks.bounds.states import BATCH, end_leases
from benchmarks.prior_art import connect
from benchmarks.report import Table, Target
from benchmarks.settings import Place
from shardq import Client, Message

FEW: Final = 20
FIRST: Final = 100
"""Among so many a quiet tenant's message comes."""
MOST: Final = {False: 2.5, True: 4.0}
"""Seconds of CPU for 100,000 leases: of few tenants, and of as many tenants as leases."""


def table(place: Place) -> Table:
    """Of few tenants, and of one tenant for each lease."""
    count = place.settings.members
    rows: list[tuple[str, ...]] = []
    targets: list[Target] = []
    data: dict[str, dict[str, float]] = {}
    with contextlib.closing(connect(place.url)) as server:
        for tenants in dict.fromkeys((FEW, count)):
            spent, before = measured(place, server, tenants)
            bound = MOST[tenants > FEW] * count / 100_000
            rows.append((f"{tenants:,}", f"{spent:.2f} s", f"{bound:.2f} s", f"{before:,}"))
            targets += [
                Target(f"server CPU, {tenants:,} tenants", spent, bound, True, " s"),
                Target(f"messages before a quiet tenant's, beside {tenants:,} tenants", before, FIRST, True, ""),
            ]
            data[f"{tenants}"] = {"cpu": spent, "before": before}
    return Table(
        "bounds-leases",
        f"{count:,} leases that end together: all are taken back and delivered, in reads of {BATCH}",
        place.described("one run"),
        ("tenants", "server CPU", "at most", "before the quiet one"),
        rows, targets, data,
    )  # fmt: skip


def measured(place: Place, server: Any, tenants: int) -> tuple[float, int]:
    """The server's CPU in seconds, and how many messages came before that of a tenant that has only this one."""
    count = place.settings.members
    assert place.server.pid
    clock = Clock(server, place.server.pid)
    with Client.from_url(place.url, timeout=60) as client:
        full = Full(open_queue(client, f"leases-{tenants}", place.settings), place.settings)
        full.write(Message(PAYLOAD, f"flood-{number % tenants}") for number in range(count))
        for _ in full.read_all(count):
            pass
        end_leases(full, server)
        full.queue.write(PAYLOAD, shard_key="quiet")
        order: list[object] = []
        began = clock.cpu() / 1000
        while len(order) <= count:
            order += [each.shard_key for each in full.queue.read_many(BATCH)]
        return clock.cpu() / 1000 - began, order.index("quiet")
