"""What the partitions of a queue say of themselves, as one queue would: facts of an outlook, surveys, tenants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from shardq.model import Controls, Tenant
from shardq.model.minute import Minute
from shardq.model.waiter import Waiter, Waiters
from shardq.ops.inspect.tenants import Account, Census
from shardq.ops.operate.counting import Counted
from shardq.outlook.facts import Facts
from shardq.partitions import sums
from shardq.sharding import key_bytes

K = TypeVar("K")
V = TypeVar("V")

_OF_WAITER: Final = ("in_streams", "held_back", "in_flight", "delayed", "retrying")
_OF_MINUTE: Final = ("written", "done", "failed", "dead", "backlog", "runnable", "in_flight")


def facts(found: Sequence[Facts]) -> Facts:
    """Return the facts of a queue. Its workers tell of themselves in the head; anybody may read one partition alone."""
    memories = [each.memory for each in found if each.memory is not None]
    return replace(
        found[0],
        stats=sums.statistics([each.stats for each in found]),
        waiters=waiters([each.waiters for each in found]),
        minutes=minutes([each.minutes for each in found]),
        is_read=any(each.is_read for each in found),
        last_read=max((each.last_read for each in found if each.last_read is not None), default=None),
        failures=tuple(sums.failures([each.failures for each in found])),
        memory=max(memories, key=lambda each: each.share, default=None),
    )


def waiters(found: Sequence[Waiters]) -> Waiters:
    """Return who waits in any partition. What is allowed to all of the queue is the sum of what each partition may."""
    ends = [each.last_lease_end for each in found if each.last_lease_end is not None]
    written = [each.last_written for each in found if each.last_written is not None]
    rows: dict[bytes, Waiter] = {}
    for each in [row for part in found for row in part.rows]:
        key = key_bytes(each.shard_key)
        rows[key] = _waiter(rows[key], each) if key in rows else each
    return replace(
        found[0],
        rows=tuple(rows.values()),
        are_all=all(each.are_all for each in found),
        total_in_flight=sum(each.total_in_flight for each in found),
        total_rate=sum(each.total_rate for each in found),
        blocked_until=max(each.blocked_until for each in found),
        last_lease_end=max(ends, default=None),
        last_written=max(written, default=None),
    )


def _waiter(one: Waiter, other: Waiter) -> Waiter:
    """Return one whose home has moved, of what two partitions say."""
    allowances = [each.allowance for each in (one, other) if each.allowance is not None]
    added = {name: getattr(one, name) + getattr(other, name) for name in _OF_WAITER}
    return replace(one, allowance=sum(allowances) if allowances else None, **added)


def minutes(found: Sequence[Sequence[Minute]]) -> tuple[Minute, ...]:
    """Return the minutes of a queue, those of its partitions added. The head's say what workers told."""
    together = {each.at: each for each in found[0]}
    for each in [minute for part in found[1:] for minute in part]:
        if (known := together.get(each.at)) is not None:
            added = {name: _added(getattr(known, name), getattr(each, name)) for name in _OF_MINUTE}
            age = max(known.oldest_age or 0.0, each.oldest_age or 0.0)
            together[each.at] = replace(known, oldest_age=age or known.oldest_age, **added)
    return tuple(together.values())


def _added(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


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


def leaders(found: Sequence[tuple[list[bytes], list[bytes]]]) -> tuple[list[bytes], list[bytes]]:
    """Return who leads in any partition, by turns: of which most waits in all, those who are looked at closely tell."""
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
