"""The lease: its token, and how long its holder may believe in it. Sans-IO."""

from __future__ import annotations

import secrets


def new_holder() -> str:
    """A nonce of 128 bits that makes the leases of one read its own.

    A counter would repeat after a failover; a nonce never does.
    """
    return secrets.token_urlsafe(16)


def lease_token(place: str, entry: str, count: int, holder: str, counted: tuple[str, bytes] | None = None) -> str:
    """The member that `read` puts into the index of leases.

    *owner*, of a message that counts in the admission window: the streams that it may go to and its shard key, so that
    whoever ends the lease knows where the message belongs.

    >>> lease_token("d", "1700000000000-7", 1, "nonce", ("3,17", b"acct-7"))
    'd:1700000000000-7:1:nonce:3,17:acct-7'
    """
    token = f"{place}:{entry}:{count}:{holder}"
    return token if counted is None else f"{token}:{counted[0]}:{counted[1].decode(errors='surrogateescape')}"


def is_counted(token: str) -> bool:
    """Whether the message counts in the admission window: then its token names streams and a shard key."""
    return token.count(":") > 3


def token_argument(token: str) -> str | bytes:
    """A token as it goes to Redis: a shard key in it may be no text."""
    return token if token.isascii() else token.encode(errors="surrogateescape")


def place_of(token: str) -> str:
    """Where the body of the leased message lies: a stream number, `d` or `l`."""
    return token.partition(":")[0]


def safe_deadline(sent: float, visibility_timeout: float) -> float:
    """The local time until which the holder may act, for a lease asked for at *sent*.

    The server granted it later than *sent*, so this is early by construction; 2 ms or 1 % more cover the server's
    whole milliseconds and a drift of the clocks.
    """
    return sent + visibility_timeout - max(0.002, visibility_timeout * 0.01)


def earliest_grant(sent: float, shown: float, granted: float, arrived: float) -> float:
    """The local time before which the server cannot have granted a lease that it was to grant later.

    Its clock showed *shown* at local time *sent* or later, and *granted* (both seconds) when it granted; the reply had
    come by *arrived*. So the grant was *granted - shown* after *sent*, or later. That is early by what the request was
    under way; 0.1 % more covers a drift of the clocks, and the server's whole milliseconds are rounded down. Should its
    clock have jumped meanwhile, the grant still lies between *sent* and *arrived*. Being early is what keeps a holder
    from believing too long; authority over the lease is the server's all the same.
    """
    return min(max(sent, sent + (granted - shown) * 0.999), arrived)
