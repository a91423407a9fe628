"""The table of all calls in all states."""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict
from functools import partial
from typing import Final

from benchmarks.bounds.clock import Clock, Spent
from benchmarks.bounds.full import ROUNDS, Full, open_queue, tenants_of
from benchmarks.bounds.states import STATES, Call
from benchmarks.prior_art import connect
from benchmarks.report import Table, Target, percentile
from benchmarks.settings import Place
from shardq import Client

CALLS: Final = 15
"""Each call is made so many times for each round of the settings."""
FAST: Final = 0.6
"""µs of a HGET in a script on the machine for which the bounds are."""
COLUMNS: Final = ("state", "call", "scripts", "median", "p99", "at most", "longest script")


class Found(dict[tuple[str, str], tuple[float, Spent]]):
    """The bound of each call and what was spent, by state and call."""

    def rows(self) -> list[tuple[str, ...]]:
        """As texts."""
        rows = []
        for key, (bound, spent) in self.items():
            figures = (percentile(spent.calls, 0.5), percentile(spent.calls, 0.99), bound, spent.longest)
            rows.append((*key, spent.named(), *(f"{each:.2f} ms" for each in figures)))
        return rows

    def targets(self) -> list[Target]:
        """Of each bound the call that comes next to it, in the middle, and of a hundred."""
        targets = []
        for bound in sorted({bound for bound, _ in self.values()}):
            there = {key: spent for key, (own, spent) in self.items() if own == bound}
            for what, share in (("median", 0.5), ("p99", 0.99)):
                value, worst = max((percentile(spent.calls, share), key) for key, spent in there.items())
                targets.append(Target(f"{what} of calls", value, bound, True, " ms", ": ".join(worst)))
        return targets


def table(place: Place) -> Table:
    """Fill the queues, then make the calls."""
    found, chosen = Found(), place.settings
    times = CALLS * chosen.rounds
    assert place.server.pid
    with contextlib.closing(connect(place.url)) as server, Client.from_url(place.url, timeout=60) as client:
        clock, began = Clock(server, place.server.pid), time.perf_counter()
        reference = clock.reference()
        full = Full(open_queue(client, "bounds", chosen), chosen)
        full.fill()
        limited = Full(open_queue(client, "limited", chosen), chosen)
        limited.fill_limited()
        spent = time.perf_counter() - began
        for state in STATES:
            there = limited if state.limited else full
            state.begin(there, server)
            for call in state.calls:
                found[state.name, call.name] = call.bound, _spent(call, there, clock, times // call.fewer or 1)
            state.end(there)
    members, tenants = chosen.members, tenants_of(chosen)
    return Table(
        "bounds",
        f"Calls beside {tenants:,} tenants, {ROUNDS * tenants:,} messages, and {members:,} members of each index",
        place.described(
            f"server CPU of each of {times} calls, after {spent:,.0f} s of filling; a HGET in a script takes "
            f"{reference:.1f} µs ({FAST} where the bounds were set)"
        ),
        COLUMNS, found.rows(), found.targets(), {": ".join(key): asdict(spent) for key, (_, spent) in found.items()},
    )  # fmt: skip


def _spent(call: Call, full: Full, clock: Clock, times: int) -> Spent:
    with clock.watched() as spent:
        for _ in range(times):
            ready = call.prepare(full)
            clock.call(spent, partial(call.run, full, ready))
    return spent
