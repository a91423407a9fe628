"""A gateway's work, by token and by address, as its operator sees it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from shardq.gateway.counters import Counters
from shardq.gateway.strangers import Address

if TYPE_CHECKING:
    from shardq.gateway.server import Gateway

MAX_ADDRESSES: Final = 100
"""Addresses that are shown: those with most denied calls and connections that were turned away."""


def report_of(gateway: Gateway) -> dict[str, Any]:
    """Return the counts of each token, and of each address from which strangers come."""
    names = sorted({*gateway.by_token, *(each.token.name for each in gateway.connections)})
    addresses = sorted(gateway.door.addresses, key=_blame, reverse=True)[:MAX_ADDRESSES]
    return {
        "ready": gateway.readiness.is_able,
        "tokens": {name: _of_token(gateway, name) for name in names},
        "addresses": {each.name: _of_address(each) for each in addresses if each.connections or _blame(each)},
    }


def _of_token(gateway: Gateway, name: str) -> dict[str, Any]:
    found, opened = Counters(), 0
    found.add(gateway.by_token.get(name, Counters()))
    for each in gateway.connections:
        if each.token.name == name:
            found.add(each.counters)
            opened += 1
    held = gateway.memory.share(name).used
    return {**asdict(found), "refused_by": dict(found.refused_by), "open": opened, "held": held}


def _of_address(address: Address) -> dict[str, int]:
    return {
        "connections": address.connections, "strangers": len(address.strangers), "denied": address.denied,
        "turned_away": address.turned_away,
    }  # fmt: skip


def _blame(address: Address) -> int:
    return address.denied + address.turned_away
