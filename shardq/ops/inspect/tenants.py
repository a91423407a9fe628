"""Tenants of a queue and what they have in it: by their backlog, by what they have in flight, by how long they wait.

A survey reads pages of the queue's own accounts as they are stored, by plain commands: a script that takes them apart
costs the server eight times as much. Each page takes less than 2 ms of the server, however many tenants there are; the
order is made here. It is not one instant. Pages are not asked for together, since the server would serve nobody else
between two of them. Only those that are shown are looked at by a script.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from msgspec.structs import replace

from shardq.arguments import one_of, whole
from shardq.errors import ConfigError
from shardq.model.limits import Limits
from shardq.model.tenant import Neighbour, Tenant
from shardq.ops.inspect.ages import RUNS, Waits, first_waits, tenant_of, wait_of
from shardq.ops.queue.opening import missing
from shardq.ops.queue.retry import always, ask, retry_until
from shardq.ops.queue.sight import Sight, sight
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Argument, Call, Op
from shardq.ops.queue.view import QueueView
from shardq.protocol.bodies import text_or_bytes
from shardq.protocol.limits import end_of_pause, parsed_limits
from shardq.protocol.standing import lease_of
from shardq.sharding import key_bytes

Order = Literal["backlog", "oldest", "in_flight", "held_back", "time", "dedup", "dead", "results"]
ORDERS: Final[tuple[Order, ...]] = ("backlog", "oldest", "in_flight", "held_back", "time", "dedup", "dead", "results")
BOUNDS: Final = {"dedup": "D:", "dead": "X:", "results": "R:"}
"""The orders by what is used of a bound: how the names of these fields of the state begin."""
MOST: Final = 1000
PAGE: Final = 500
LOOKED_AT: Final = 16
"""So many of a tenant's streams are searched for its oldest message, where not all that waits is looked at."""
SMALL: Final = 10_000
"""Up to so many messages in the streams and tenants with an overflow, all that waits is looked at for its age."""
EVERYBODY: Final = 2**40
MAX_CHANGED: Final = 1000
"""Leases that ended, and tenants of which something came due, that are looked at before a read has seen them."""
NEIGHBOURS: Final = 10
_NUMBER: Final = re.compile(rb"\d+")


class Account(NamedTuple):
    """What an account says: undelivered in the streams, held back, of these for limits, delayed, in flight.

    `ahead` is in units of 0.1 ms. `returned` of those held back were given back or came due.
    """

    in_streams: int = 0
    held_back: int = 0
    limited: int = 0
    delayed: int = 0
    in_flight: int = 0
    ahead: int = 0
    returned: int = 0

    @property
    def waits_outside(self) -> bool:
        """Whether its first message may lie outside of the streams: what is new there came after those in streams."""
        return self.held_back > 0 and (not self.in_streams or self.returned > 0)

    @property
    def backlog(self) -> int:
        """All that waits."""
        return self.in_streams + self.held_back


def stored_account(text: bytes, virtual: int) -> Account:
    """Read an account as it is stored (lua/accounts.lua), beside the queue's *virtual* time, but for what limits block.

    A text that something else wrote counts as nothing.
    """
    words = text.split(b" ")
    try:
        if len(words) == 1:
            both, served, waits = (*text.split(b":", 3), b"", b"")[:3]
            in_flight, in_streams = divmod(int(both), 1000)
            return Account(in_streams, int(waits or 0), in_flight=in_flight, ahead=max(0, int(served or 0) - virtual))
        in_streams, in_flight, held, returned, delayed = map(int, words[:5])
        ahead = 0 if words[5] == b"-" else max(0, round(float(words[5])) - virtual)
    except (ValueError, IndexError):
        return Account()
    return Account(in_streams, held, 0, delayed, in_flight, ahead, returned)


def account_of(text: bytes) -> Account:
    """Read an account as the verbs `present` and `tenant` tell it."""
    in_streams, in_flight, held, limited, delayed, ahead = map(int, text.split(b"|"))
    return Account(in_streams, held, limited, delayed, in_flight, ahead, returned=held)


def tenants(state: QueueState, order: str, limit: int, start: int, timeout: float | None = None) -> Op[list[Tenant]]:
    """Return the tenants from rank *start* on, at most *limit*, those first that have most of what *order* names."""
    one_of("order", order, ORDERS)
    whole("limit", limit, 1, MOST)
    whole("start", start, 0, 2**40)
    until = state.until(timeout)
    seen = yield from sight(state, until) if order in BOUNDS else _knowing(state, until)
    if order in BOUNDS:
        uses = yield from _uses(state, BOUNDS[order], until)
        return (yield from _first(state, seen, uses, None, limit, start, until))
    accounts = yield from _accounts(state, seen, until)
    # Each message in a stream has to be looked at, but of an overflow only the first.
    is_small = sum(each.in_streams + bool(each.held_back) for each in accounts.values()) <= SMALL
    outside = [name for name, each in accounts.items() if each.waits_outside]
    waits = None
    if order == "oldest":
        waits = yield from first_waits(state, seen.view, outside, start + limit, until)
    elif is_small:
        waits = yield from first_waits(state, seen.view, outside, EVERYBODY, until)
    return (yield from _first(state, seen, _ranks(order, accounts, waits), waits, limit, start, until))


def _first(
    state: QueueState,
    seen: Sight,
    ranks: Mapping[bytes, float],
    waits: Waits | None,
    limit: int,
    start: int,
    until: float,
) -> Op[list[Tenant]]:
    """Return those of the highest ranks."""
    # By name where ranks are the same, so that two pages show nobody twice.
    first = heapq.nsmallest(start + limit, ranks.items(), key=lambda each: (-each[1], each[0]))[start:]
    found: list[Tenant] = []
    for name, _ in first:
        found.append((yield from _detail(state, seen, name, waits, until)))
    return found


def tenant(state: QueueState, key: str | bytes, timeout: float | None = None) -> Op[Tenant]:
    """Return what one tenant has, with its neighbours: it costs the same however many others there are."""
    until, name = state.until(timeout), key_bytes(key)
    seen = yield from _knowing(state, until)
    reply = yield from _look(state, seen.view, name, until)
    found = _tenant(seen.view, name, reply)
    if found.in_streams:
        age = _age(seen, (yield from wait_of(state, seen.view, name, found.in_streams, until)))
        found = replace(
            found, oldest_age=max((each for each in (age, found.oldest_age) if each is not None), default=None)
        )
    return replace(found, neighbours=_near(seen.view, found.streams, reply[7]))


def _near(view: QueueView, streams: Sequence[int], others: Sequence[Any]) -> tuple[Neighbour, ...]:
    near = [
        Neighbour(text_or_bytes(other), shared, backlog)
        for other, backlog in zip(others[::2], others[1::2], strict=True)
        if (shared := len(set(streams).intersection(view.shard(text_or_bytes(other)))))
    ]
    near.sort(key=lambda each: (-each.shared, -each.backlog, key_bytes(each.shard_key)))
    return tuple(near[:NEIGHBOURS])


def _ranks(order: str, accounts: Mapping[bytes, Account], waits: Waits | None) -> Mapping[bytes, float]:
    if order == "oldest":
        return {name: -ms for name, ms in (waits or {}).items()}
    if order == "in_flight":
        return {name: each.in_flight for name, each in accounts.items() if each.in_flight}
    if order == "time":
        return {name: each.ahead for name, each in accounts.items() if each.ahead}
    if order == "held_back":
        return {name: each.held_back for name, each in accounts.items() if each.held_back}
    # Those with delayed messages alone come last, by 0: they are tenants of the queue, too.
    return {name: each.backlog for name, each in accounts.items() if each.backlog or each.delayed}


def _uses(state: QueueState, kind: str, until: float) -> Op[dict[bytes, float]]:
    found: dict[bytes, float] = {}
    for name, text in (yield from _fields(state, kind, until)):
        number = _NUMBER.match(text)
        found[name] = int(number[0]) if number else 0
    return found


def _accounts(state: QueueState, seen: Sight, until: float) -> Op[dict[bytes, Account]]:
    line = yield from ask(state, "HGET", state.keys.meta, "line", until=until)
    if not line:
        raise missing(state)
    virtual = int(line.split(b" ")[0])
    found = {name: stored_account(text, virtual) for name, text in (yield from _fields(state, "t:", until))}
    changed = yield from _changed_by_time(state, seen, until)
    for at in range(0, len(changed), RUNS):
        told = yield from _ask(state, until, Call.on(state.keys, "present", tuple(changed[at : at + RUNS])))
        found |= {name: account_of(text) for name, text in zip(told[::2], told[1::2], strict=True)}
    return found


def _changed_by_time(state: QueueState, seen: Sight, until: float) -> Op[list[bytes]]:
    """Return the tenants of which leases have ended, or something came due, and no read has seen it."""
    now, keys = int(seen.time * 1000), state.keys
    some = ("LIMIT", 0, MAX_CHANGED)
    names = yield from ask(state, "ZRANGEBYSCORE", keys.due, "-inf", f"{now}.999", *some, until=until)
    tokens = yield from ask(state, "ZRANGEBYSCORE", keys.leases, "-inf", now, *some, until=until)
    leases = filter(None, map(lease_of, tokens))
    return sorted({*names, *(tenant_of(seen.view, each.shard_key or b"") for each in leases)})


def _fields(state: QueueState, kind: str, until: float) -> Op[list[tuple[bytes, bytes]]]:
    """Return all fields of the state whose names begin with *kind*: the rest of the name, and what each says."""
    found: list[tuple[bytes, bytes]] = []
    cursor: Argument = "0"
    while cursor != b"0":
        key = state.keys.meta
        cursor, flat = yield from ask(state, "HSCAN", key, cursor, "MATCH", f"{kind}*", "COUNT", PAGE, until=until)
        found += [(name[len(kind) :], text) for name, text in zip(flat[::2], flat[1::2], strict=True)]
    return found


def _knowing(state: QueueState, until: float) -> Op[Sight]:
    """Look at the queue. ConfigError if it does not know its shard keys."""
    seen = yield from sight(state, until)
    # Without a window messages are counted on no account, and all would look idle.
    if not seen.view.config.window:
        raise ConfigError(
            f"queue {state.keys.name!r} has no window, so it does not know its shard keys: "
            "configure(window=1) switches the window on"
        )
    return seen


def _detail(state: QueueState, seen: Sight, name: bytes, waits: Waits | None, until: float) -> Op[Tenant]:
    """Return one of several tenants. If *waits* are given, they say since when it waits."""
    found = _tenant(seen.view, name, (yield from _look(state, seen.view, name, until, alone=waits is not None)))
    return found if waits is None else replace(found, oldest_age=_age(seen, waits.get(name)))


def _look(state: QueueState, view: QueueView, name: bytes, until: float, *, alone: bool = False) -> Op[Sequence[Any]]:
    """Ask for one tenant: *alone*, or with what is found at the heads of its streams."""
    streams = () if alone else _streams(view, name)[:LOOKED_AT]
    call = Call.on(state.keys, "tenant", (name,), rest=tuple(map(state.keys.stream, streams)))
    reply: Sequence[Any] = yield from _ask(state, until, call)
    if not reply:
        raise missing(state)
    return reply


def _age(seen: Sight, since: int | None) -> float | None:
    # Not below 0: the look at the queue may be older than the message.
    return None if since is None else max(0, round(seen.time * 1000) - since) / 1000


def _tenant(view: QueueView, name: bytes, reply: Sequence[Any]) -> Tenant:
    now, text, weight, limits, plan, uses, oldest, _ = reply
    dedup_keys, dead, result_bytes = map(int, uses.split(b"|"))
    account, own, end = account_of(text), Limits(), 0.0
    if limits:
        own, end = parsed_limits(limits.decode())
    return Tenant(
        shard_key=text_or_bytes(name),
        backlog=account.backlog,
        in_streams=account.in_streams,
        held_back=account.held_back,
        limited=account.limited,
        delayed=account.delayed,
        in_flight=account.in_flight,
        ahead=account.ahead / 10_000,
        oldest_age=max(0, now - int(oldest)) / 1000 if oldest else None,
        weight=int(weight),
        limits=own,
        plan=plan.decode() or None,
        dedup_keys=dedup_keys,
        dead=dead,
        result_bytes=result_bytes,
        paused_until=end_of_pause(end) if end > now else None,
        streams=_streams(view, name),
    )


def _streams(view: QueueView, name: bytes) -> tuple[int, ...]:
    # A parent has no shard: its children's messages go to streams of their own.
    return () if view.config.parents else tuple(view.shard(text_or_bytes(name)))


def _ask(state: QueueState, until: float, call: Call) -> Op[Any]:
    return (yield from retry_until(always(call), until, state.clock))
