"""Lease tokens, and until when a holder may rely on its lease. No I/O."""

from __future__ import annotations

import os
from binascii import b2a_base64
from typing import Final

_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def new_holder() -> str:
    """Return a nonce of 128 bits that marks the leases of one try of a read.

    A counter could repeat after a failover; a nonce does not.
    """
    return b2a_base64(os.urandom(16)).translate(_URL_SAFE)[:22].decode()  # `secrets` takes twice as long


def lease_token(place: str, entry: str, count: int, holder: str, marks: str, shard_key: bytes) -> str:
    """Return the lease token: the member that `read` puts into the index of leases.

    The *marks* are what else must be known of the message when the lease ends (lua/leases.lua).

    >>> lease_token("d", "1700000000000-7", 1, "nonce", "f1700000000000", b"acct-7")
    'd:1700000000000-7:1:nonce:f1700000000000:acct-7'
    """
    return f"{place}:{entry}:{count}:{holder}:{marks}:{shard_key.decode(errors='surrogateescape')}"


def token_argument(token: str) -> str | bytes:
    """Return the token as an argument for Redis. With a shard key that is not ASCII it is bytes, which may be any."""
    return token if token.isascii() else token.encode(errors="surrogateescape")


def is_charged(token: str) -> bool:
    """Return whether the time that the work on the message takes counts: others waited when it was delivered.

    >>> is_charged("d:1700000000000-7:1:nonce:ef1700000000000:acct-7")
    True
    """
    marks = token.split(":", 5)[4:5]
    return bool(marks) and marks[0][-1:].isdigit()


def spelled_cost(seconds: float, *, is_told: bool) -> str:
    """Return what the work on a message costs as the verbs read it, in ms.

    The server believes a measured time up to the age of the lease. A cost that the consumer told (*is_told*) stands as
    it is.

    >>> spelled_cost(0.0125, is_told=False), spelled_cost(60, is_told=True)
    ('12.5', '=60000.0')
    """
    return f"{'=' if is_told else ''}{seconds * 1000:.1f}"


def place_of(token: str) -> str:
    """Return the place where the body of the leased message lies: the number of a stream, `d` or `l`."""
    return token.partition(":")[0]


def deliveries_in(token: str) -> int:
    """Return which delivery it is since the message was written or redriven: `max_deliveries` bounds these."""
    return int(token.split(":", 3)[2])


def safe_deadline(sent: float, visibility_timeout: float) -> float:
    """Return the local time until which a holder may rely on its lease, which was requested at local time *sent*.

    The server granted the lease later than *sent*, so this time is never too late. It is earlier by another 1 %, or at
    least 2 ms, because the server counts whole milliseconds and the two clocks may drift.
    """
    return sent + visibility_timeout - max(0.002, visibility_timeout * 0.01)


def earliest_grant(sent: float, server_before: float, server_granted: float, arrived: float) -> float:
    """Return the earliest local time at which the server can have granted the lease of an armed read.

    The server's clock showed *server_before* at local time *sent* or later, and *server_granted* when it granted the
    lease (both in seconds). So the lease was granted *server_granted - server_before* seconds after *sent*, or later.
    The result is too early by the time that the request travelled, and by 0.1 % for a drift of the clocks; the server
    rounds milliseconds down. If its clock jumped meanwhile, the lease was still granted between *sent* and *arrived*.

    An early result is safe: the holder stops relying on the lease too soon rather than too late. Only the server
    decides about the lease.
    """
    return min(max(sent, sent + (server_granted - server_before) * 0.999), arrived)
