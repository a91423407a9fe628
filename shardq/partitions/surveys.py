"""The answers of a queue's partitions to a look at its tenants, together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from shardq.model import Controls, Tenant
from shardq.ops.inspect.tenants import Account, Census
from shardq.ops.operate.counting import Counted
from shardq.outlook.together import longest
from shardq.partitions import sums
from shardq.sharding import key_bytes

K = TypeVar("K")
V = TypeVar("V")


def census(found: Sequence[Census]) -> Census:
    """Return all tenants of all partitions."""
    accounts: dict[bytes, Account] = {}
    dead: dict[bytes, int] = {}
    for each in found:
        for name, account in each.accounts.items():
            known = accounts.get(name)
            accounts[name] = account if known is None else Account(*map(sum, zip(known, account, strict=True)))
        for name, count in each.dead.items():
            dead[name] = dead.get(name, 0) + count
    return Census(found[0].time, accounts, dead, sum(each.in_streams for each in found))


def named(found: Sequence[Sequence[Tenant]]) -> list[Tenant]:
    """Return what each of these tenants has in all partitions, in the order in which they were named."""
    together = {key_bytes(each.shard_key): each for each in sums.tenants(found, "backlog")}
    return [together[key_bytes(each.shard_key)] for each in found[0]]


def in_all(found: Sequence[Tenant]) -> Tenant:
    """Return what one tenant has in all partitions, its home first, which has its settings and its neighbours."""
    [together] = sums.tenants([[each] for each in found], "backlog")
    return together


def completed(shown: Sequence[Tenant], found: Sequence[Sequence[Tenant]], order: str) -> list[Tenant]:
    """Return the tenants that are *shown*, with what is *found* of them in all partitions, in this order."""
    ages = {key_bytes(each.shard_key): each.oldest_age for each in shown}
    rows = [
        replace(each, oldest_age=longest((each.oldest_age, ages[key_bytes(each.shard_key)]))) for each in named(found)
    ]
    return sums.tenants([rows], order)


def leaders(found: Sequence[tuple[list[bytes], list[bytes]]]) -> tuple[list[bytes], list[bytes]]:
    """Return who leads in any partition, by turns; a closer look at these shows which have most in all."""
    return _by_turns([first for first, _ in found]), _by_turns([also for _, also in found])


def _by_turns(found: Sequence[Sequence[bytes]]) -> list[bytes]:
    longest = max(map(len, found))
    return [*dict.fromkeys(part[at] for at in range(longest) for part in found if at < len(part))]


def controls(found: Sequence[Controls]) -> Controls:
    """Return what shard keys have of their own. Each partition has all of it; one that has come later may have less."""
    return replace(
        found[0],
        paused=_joined([each.paused for each in found]),
        limits=_joined([each.limits for each in found]),
        weights=_joined([each.weights for each in found]),
    )


def _joined(found: Sequence[Mapping[K, V]]) -> dict[K, V]:
    return {key: value for each in reversed(found) for key, value in each.items()}


def counted(found: Sequence[Counted]) -> Counted:
    """Return how many messages were found in all partitions."""
    return Counted(sum(each.found for each in found), all(each.are_all for each in found))
