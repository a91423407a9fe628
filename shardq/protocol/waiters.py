"""Read the reply of the verb `outlook`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from shardq.model.waiter import Waiter, Waiters
from shardq.protocol.bodies import text_or_bytes
from shardq.protocol.limits import end_of_pause

NO_WINDOW_MS: Final = 1_000_000_000
"""In place of a window for a queue that has none, if it keeps accounts for its limits (lua/rules.lua)."""
NEVER_MS: Final = 9_000_000_000_000
"""A time in ms that never comes: pauses without an end last until then or longer."""


def waiters_of(reply: Sequence[Any]) -> Waiters:
    """Return who waits. The reply is of a queue that exists."""
    now, size, looked_at, blocked, lease, visibility, last, rules, flat = reply
    window, _, total_in_flight, total_rate = rules.split(b" ")
    written = last.partition(b"-")[0]
    return Waiters(
        time=int(now) / 1000,
        rows=tuple(_waiter(name, text) for name, text in zip(flat[::2], flat[1::2], strict=True)),
        are_all=int(size) <= int(looked_at),
        window=0 if int(window) >= NO_WINDOW_MS else int(window),
        total_in_flight=int(total_in_flight),
        total_rate=float(total_rate),
        blocked_until=int(blocked) / 1000,
        last_lease_end=int(lease) / 1000 or None,
        visibility_timeout=int(visibility or 30_000) / 1000,
        last_written=int(written) / 1000 if written.isdigit() else None,
    )


def _waiter(name: bytes, text: bytes) -> Waiter:
    taken, flight, behind, delayed, retrying, weight, cap, rate, allowance, pause = text.split(b" ")
    return Waiter(
        shard_key=text_or_bytes(name),
        in_streams=int(taken),
        held_back=int(behind),
        in_flight=int(flight),
        delayed=int(delayed),
        retrying=min(int(retrying), int(delayed)),
        weight=max(1, int(weight)),
        max_in_flight=int(cap),
        rate=float(rate),
        allowance=None if int(allowance) < 0 else int(allowance),
        paused_until=_end(int(pause)),
    )


def _end(ms: int) -> float | None:
    return end_of_pause(ms if ms < NEVER_MS else 1e16) if ms else None
