"""A turn of a mode: its cycles on an empty server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from benchmarks.modes.caller import Caller, Order, make_caller
from benchmarks.modes.cycles import Cycle, Meter, kept, with_ack
from benchmarks.modes.matrix import MODES
from benchmarks.modes.mode import Mode
from benchmarks.modes.probes import Probe, commands_of, cpu_of, instructions_of, memory_of
from benchmarks.prior_art import connect
from shardq import Client

USER: Final = "restricted"
COLD: Final = 5
"""Calls at first that do not count."""
FEWER: Final = 5
"""Of how many cycles that are measured one is run again, to see its commands and its time in scripts."""
GROUP: Final = 50
"""How many single calls of one verb come together while instructions are counted: each look takes a while."""
Spent = dict[str, dict[str, float]]
"""By verb, what was spent for each message: µs of `cpu` and `scripts`, how often each command ran, or instructions."""


def take(order: Order) -> Spent:
    """Run the cycles of a mode."""
    mode = MODES[order.mode]
    if order.counts:
        mode = replace(mode, group=max(GROUP, mode.group))
    with connect(order.url) as server:
        server.execute_command("FLUSHALL", "SYNC")  # nothing is freed while the cycles run
        with Client.from_url(_url(server, mode, order.url)) as client:
            caller = make_caller(client, mode, order)
            if mode.cycle is kept:
                return _run(caller, kept, memory_of(server), order.cycles)
            if order.counts:
                return _instructions(caller)
            return _costs(caller, server)


def _costs(caller: Caller, server: Any) -> Spent:
    """CPU of all verbs, then their commands and times in scripts."""
    order, cycle = caller.order, caller.mode.cycle
    if order.batch == 1:
        for _ in range(COLD):
            cycle(caller, Meter(dict))
    spent = _run(caller, cycle, cpu_of(order.pid), order.cycles)
    seen = _run(caller, cycle, commands_of(server), -(-order.cycles // FEWER))
    if caller.acks_with_reads:
        spent |= _run(caller, with_ack, cpu_of(order.pid), order.cycles)
        caller.settle()
    return {verb: {**found, **seen.get(verb, {})} for verb, found in spent.items()}


def _instructions(caller: Caller) -> Spent:
    """The instructions of each verb, of some cycles: Lua collects its garbage now and then."""
    order, cycle = caller.order, caller.mode.cycle
    probe = instructions_of(order.pid, Path(order.counts))
    seen = _run(caller, cycle, probe, order.cycles)
    if caller.acks_with_reads:
        seen |= _run(caller, with_ack, probe, order.cycles)
    return seen


def _url(server: Any, mode: Mode, url: str) -> str:
    """That of the user whom the mode restricts; else *url*."""
    if not mode.user:
        return url
    server.execute_command("ACL", "SETUSER", USER, "reset", "on", f">{USER}", *mode.user.split())
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{USER}:{USER}@{rest}"


def _run(caller: Caller, cycle: Cycle, probe: Probe, cycles: int) -> Spent:
    """What so many cycles spent, after one that does not count."""
    cycle(caller, Meter(probe))
    meter = Meter(probe)
    for _ in range(cycles):
        cycle(caller, meter)
    return meter.each()
