"""The lease: its token, and how long its holder may believe in it. Sans-IO."""

from __future__ import annotations

import secrets


def new_holder() -> str:
    """A nonce of 128 bits that makes the leases of one read its own.

    A counter would repeat after a failover; a nonce never does.
    """
    return secrets.token_urlsafe(16)


def place_of(token: str) -> str:
    """Where the body of the leased message lies: a stream number, `d` or `l`."""
    return token.partition(":")[0]


def holder_of(token: str) -> str:
    """The nonce of the read that was granted this lease."""
    return token.rpartition(":")[2]


def believed_until(sent: float, visibility_timeout: float) -> float:
    """The local time until which the holder may act, for a lease asked for at *sent*.

    The server granted it later than *sent*, so this is early by construction; 2 ms or 1 % more cover the server's
    whole milliseconds and a drift of the clocks.
    """
    return sent + visibility_timeout - max(0.002, visibility_timeout * 0.01)
