"""Connections without a token: the share of each address, and of all of them together.

A connection is a stranger's until a call on it shows a token, and again when its last such call is over. So the
connections of honest producers, thousands of them perhaps at one address, hardly count here: they are strangers for as
long as it takes to open them.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import Any, Final

from shardq.clock import Clock
from shardq.gateway.bucket import TokenBucket

BYTES_AND_RATE, MORE_BYTES = 16 * 1024, 8 * 1024
"""Bytes that an address may send without a token, and how many more each second. Frames of 20 bytes make a call each,
which takes a gateway 0.2 ms: so one address takes less than a tenth of a processor."""
CALLS: Final = 100
"""Calls without a token that an address may make at once; a fifth of that comes back each second."""
ALL_STRANGERS_FACTOR: Final = 4
"""All strangers together may have the connections and bytes of one address times this factor."""
MAX_ADDRESSES: Final = 4096
"""Addresses that are remembered: those seen last, and those with connections."""


class Address:
    """The connections and counts of one address. `strangers` are its connections without a token, the oldest first."""

    def __init__(self, name: str, per_address: int, clock: Clock) -> None:
        self.name = name
        self.strangers: dict[Any, None] = {}
        self.newcomers = TokenBucket(per_address, per_address / 8, clock)
        self.calls = TokenBucket(CALLS, CALLS / 5, clock)
        self.bytes = TokenBucket(BYTES_AND_RATE, MORE_BYTES, clock)
        self.connections = self.turned_away = self.denied = 0


class Strangers:
    """The connections without a token, by address. At most *per_address* of each.

    In all there are at most `ALL_STRANGERS_FACTOR` as many.
    """

    def __init__(self, per_address: int, clock: Clock) -> None:
        self.by_name: OrderedDict[str, Address] = OrderedDict()
        self._per_address, self._in_all, self._clock = per_address, ALL_STRANGERS_FACTOR * per_address, clock
        self._bytes = TokenBucket(ALL_STRANGERS_FACTOR * BYTES_AND_RATE, ALL_STRANGERS_FACTOR * MORE_BYTES, clock)
        self._count = 0

    def address(self, name: str) -> Address:
        """Return what is known of the address *name*."""
        found = self.by_name.get(name)
        if found is None:
            found = self.by_name[name] = Address(name, self._per_address, self._clock)
            self._forget_some()
        self.by_name.move_to_end(name)
        return found

    def add(self, connection: Any, address: Address) -> None:
        """Count *connection*."""
        address.strangers[connection] = None
        self._count += 1

    def beyond(self, address: Address) -> Any:
        """Return one that has to make room for a new one of *address*: the oldest of it, or of the address with most.

        None if there is room. A connection whose last call with a token is over asks nobody to make room for it.
        """
        if len(address.strangers) > self._per_address:
            return next(iter(address.strangers))
        if self._count > self._in_all:
            return next(iter(max(self.by_name.values(), key=lambda each: len(each.strangers)).strangers))
        return None

    def remove(self, connection: Any, address: Address) -> None:
        """Count *connection* no more; nothing if it was not counted."""
        if connection in address.strangers:
            del address.strangers[connection]
            self._count -= 1

    def may_send(self, address: Address) -> int:
        """Return how many bytes may come now from *address*."""
        return int(min(address.bytes.left, self._bytes.left))

    def sent(self, address: Address, size: int) -> None:
        """Count *size* bytes; fewer than 0 give them back."""
        for bucket in (address.bytes, self._bytes):
            bucket.take(size)

    def everyone(self) -> list[Any]:
        """Return all connections without a token."""
        return [each for address in self.by_name.values() for each in address.strangers]

    def _forget_some(self) -> None:
        for _ in range(len(self.by_name)):
            if len(self.by_name) <= MAX_ADDRESSES:
                return
            name, oldest = next(iter(self.by_name.items()))
            if oldest.connections:
                self.by_name.move_to_end(name)
            else:
                del self.by_name[name]


def name_of(host: str) -> str:
    """Return how *host* is counted: an IPv6 address by its /64, which one customer has whole; "" is a local socket."""
    if not host:
        return "local"
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
