"""A server's report of its memory, files, clients and clock, beside the settings that matter for durability."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from shardq.clock import Clock
from shardq.errors import BackendError, BackendTimeout
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.steps import Argument, Ask, Op, Refused

PINGS: Final = 20
_LUA_PROBE: Final = """#!lua flags=no-writes
local strings = getmetatable('')
local is_open = strings and pcall(function() strings.__index = strings.__index end)
return is_open and 'open' or 'closed'"""
"""Whether a script may change the metatable of strings, which the fixes of October 2025 forbid: it sets what is set."""


class Health(msgspec.Struct, frozen=True):
    """A server's report about itself; None for the parts that are missing.

    Sizes are bytes; `maxmemory` is 0 without a limit. `refused` counts commands that were refused since the server
    started because its memory was full. `offset` is by how many seconds its clock is ahead of this machine's, exact to
    `exact`; `jumped` by how many it jumped while it was looked at. `lua_is_open` is whether its Lua lacks the fixes of
    October 2025, as far as a script can see.
    """

    round_trip: float
    offset: float | None = None
    exact: float = 0.0
    jumped: float | None = None
    memory: int | None = None
    maxmemory: int | None = None
    machine_memory: int | None = None
    refused: int | None = None
    clients: int | None = None
    max_clients: int | None = None
    is_replica: bool | None = None
    failed_files: tuple[str, ...] = ()
    lua_is_open: bool | None = None


def health(clock: Clock, timeout: float) -> Op[Health]:
    """Ask the server how it is. The parts that this user may not ask for stay None."""
    until = clock.monotonic() + timeout
    first = yield from _time(clock, until)
    trips = []
    for _ in range(PINGS):
        started = clock.monotonic()
        yield from retry_until(always(Ask(("PING",))), until, clock)
        trips.append(clock.monotonic() - started)
    info = _pairs((yield from _asked(clock, until, "INFO")))
    probed = yield from _asked(clock, until, "EVAL_RO", _LUA_PROBE, 0)
    last = yield from _time(clock, until)
    return _read(info, sorted(trips)[PINGS // 2], first, last, probed)


def _time(clock: Clock, until: float) -> Op[tuple[float, float, float, float] | None]:
    """Return the server's time, this machine's, that of its monotonic clock, and how exact these go together."""
    before = clock.monotonic()
    reply = yield from _asked(clock, until, "TIME")
    after, wall = clock.monotonic(), clock.wall()
    if reply is None:
        return None
    middle = (after - before) / 2
    return int(reply[0]) + int(reply[1]) / 1e6, wall - middle, before + middle, middle


def _asked(clock: Clock, until: float, *words: Argument) -> Op[Any]:
    """Ask; None if this user may not, or the server does not know the command."""
    try:
        return (yield from retry_until(always(Ask(words)), until, clock))
    except BackendTimeout:
        raise
    except BackendError as error:
        if isinstance(error.__cause__, Refused):
            return None
        raise


def _pairs(raw: bytes | None) -> dict[str, str]:
    lines = (raw or b"").decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


Seen = tuple[float, float, float, float] | None


def _read(info: Mapping[str, str], trip: float, first: Seen, last: Seen, probed: bytes | None) -> Health:
    offset, exact, jumped = None, 0.0, None
    if first and last:
        offset, exact = last[0] - last[1], last[3]
        jumped = (last[0] - first[0]) - (last[2] - first[2])
        jumped = 0.0 if abs(jumped) <= first[3] + last[3] else jumped
    statuses = {
        "aof_last_write_status": "the append-only file",
        "aof_last_bgrewrite_status": "the append-only file again",
        "rdb_last_bgsave_status": "a snapshot",
    }
    return Health(
        round_trip=trip,
        offset=offset,
        exact=exact,
        jumped=jumped,
        memory=_number(info, "used_memory"),
        maxmemory=_number(info, "maxmemory"),
        machine_memory=_number(info, "total_system_memory"),
        refused=_refused(info),
        clients=_number(info, "connected_clients"),
        max_clients=_number(info, "maxclients"),
        is_replica={"master": False, "slave": True}.get(info.get("role", "")),
        failed_files=tuple(what for name, what in statuses.items() if info.get(name, "ok") != "ok"),
        lua_is_open={b"open": True, b"closed": False}.get(probed or b""),
    )


def _number(info: Mapping[str, str], name: str) -> int | None:
    text = info.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _refused(info: Mapping[str, str]) -> int | None:
    """How many commands were refused for want of memory; None if the server counts no errors."""
    if not info:
        return None
    text = info.get("errorstat_OOM", "count=0").removeprefix("count=")
    return int(text) if text.isascii() and text.isdigit() else None
