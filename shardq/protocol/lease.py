"""Lease tokens, and until when a holder may rely on its lease. No I/O."""

from __future__ import annotations


def token_argument(token: str) -> str | bytes:
    """Return the token as an argument for Redis. With a shard key that is not ASCII it is bytes, which may be any."""
    return token if token.isascii() else token.encode(errors="surrogateescape")


def place_of(token: str) -> str:
    """Return the place where the body of the leased message lies: the number of a stream, `d` or `l`."""
    return token.partition(":")[0]


def deliveries_in(token: str) -> int:
    """Return which delivery it is since the message was written or redriven: `max_deliveries` bounds these."""
    return int(token.split(":", 3)[2])
