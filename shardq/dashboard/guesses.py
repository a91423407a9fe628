"""Slows those who guess tokens: by their address, so that nobody else waits for them."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import Final

from shardq.clock import Clock

MAX_GUESSES: Final = 10
"""Wrong tokens that an address may show one after the other."""
PAUSE_SECONDS: Final = 2.0
"""Seconds after which it may show another one."""
MAX_ADDRESSES: Final = 10_000
"""Addresses that are remembered: those that guessed last."""


class Guesses:
    """How many wrong tokens each address has shown lately. They are forgotten one by one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free_at: OrderedDict[str, float] = OrderedDict()
        """When all guesses of an address will be forgotten."""

    def wait(self, address: str) -> float:
        """Return in how many seconds that address may show a token; 0: now."""
        left = self._free_at.get(place_of(address), 0.0) - self._clock.monotonic()
        return max(0.0, left - (MAX_GUESSES - 1) * PAUSE_SECONDS)

    def note(self, address: str) -> None:
        """Count a wrong token."""
        now, place = self._clock.monotonic(), place_of(address)
        self._free_at[place] = max(self._free_at.pop(place, 0.0), now) + PAUSE_SECONDS
        while len(self._free_at) > MAX_ADDRESSES:
            self._free_at.popitem(last=False)


def place_of(address: str) -> str:
    """Return the unit that is counted: an address, or the network of one of IPv6, since everybody has 2**64 there."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))
