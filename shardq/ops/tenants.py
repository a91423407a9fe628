"""Who has what in a queue: tenants by their backlog, by what they have in flight, by how long they wait.

A survey reads pages of the queue's own accounts. Each page is a script that only reads, and takes less than 2 ms of the
server, however many tenants there are; the order is made here. It is not one instant. Scripts are not sent together,
since the server would serve nobody else between two of them.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple

from shardq.arguments import whole
from shardq.engine import NEW
from shardq.errors import ConfigError
from shardq.model.limits import Limits
from shardq.model.tenant import Neighbour, Tenant
from shardq.ops.ages import Waits, all_waits, tenant_of, wait_of
from shardq.ops.limiting import end_of_pause, parsed_limits
from shardq.ops.opening import missing
from shardq.ops.retry import retry_until
from shardq.ops.sight import Sight, sight
from shardq.ops.state import QueueState
from shardq.ops.steps import Argument, Call, Op
from shardq.ops.view import QueueView
from shardq.protocol.replies import text_or_bytes
from shardq.sharding import key_bytes

Order = Literal["backlog", "oldest", "in_flight", "held_back"]
ORDERS: Final[tuple[Order, ...]] = ("backlog", "oldest", "in_flight", "held_back")
MOST: Final = 1000
PAGE: Final = 500
LEASES: Final = 250
LOOKED_AT: Final = 16
"""So many of a tenant's streams are searched for its oldest message, where not all that waits is looked at."""
SMALL: Final = 10_000
"""Up to so many messages in the streams and tenants with an overflow, all that waits is looked at for its age."""
NEIGHBOURS: Final = 10
CANDIDATES: Final = 1000
"""Neighbours are looked for among the tenants with the largest backlogs, so many."""


class Account(NamedTuple):
    """What an account says: undelivered in the streams, held back, of these for limits, delayed."""

    in_streams: int = 0
    held_back: int = 0
    withheld: int = 0
    delayed: int = 0
    in_flight: int = 0

    @property
    def backlog(self) -> int:
        """All that waits."""
        return self.in_streams + self.held_back


def account_of(text: bytes) -> Account:
    """Read an account as lua/modules/accounts.lua writes it."""
    if NEW:
        in_streams, flying, held, withheld, delayed = map(int, text.split(b"|"))
        return Account(in_streams, held, withheld, delayed, flying)
    words = text.split()
    if len(words) < 2:
        return Account()
    marked = {word[:1]: int(word[1:]) for word in words[2:] if word[:1] in (b"!", b"+")}
    return Account(int(words[0]), int(words[1]), marked.get(b"!", 0), marked.get(b"+", 0))


def tenants(state: QueueState, order: str, limit: int, start: int, timeout: float | None = None) -> Op[list[Tenant]]:
    """Return the tenants from rank *start* on, at most *limit*, those first that have most of what *order* names."""
    if order not in ORDERS:
        raise ConfigError(f"order must be one of {', '.join(ORDERS)}, not {order!r}")
    whole("limit", limit, 1, MOST)
    whole("start", start, 0, 2**40)
    until = state.until(timeout)
    seen = yield from sight(state, until)
    accounts = yield from _accounts(state, until)
    is_small = sum(each.in_streams + bool(each.held_back) for each in accounts.values()) <= SMALL
    held = [name for name, each in accounts.items() if each.held_back]
    waits = (yield from all_waits(state, seen.view, held, until)) if is_small or order == "oldest" else None
    if order == "in_flight" and NEW:
        ranks: Mapping[bytes, float] = {name: each.in_flight for name, each in accounts.items() if each.in_flight}
    elif order == "in_flight":
        ranks = yield from _in_flight(state, seen.view, until)
    else:
        ranks = _ranks(order, accounts, waits)
    first = heapq.nsmallest(start + limit, ranks.items(), key=lambda each: (-each[1], each[0]))[start:]
    found: list[Tenant] = []
    for name, _ in first:
        found.append((yield from _detail(state, seen, name, waits, until)))
    return found


def tenant(state: QueueState, key: str | bytes, timeout: float | None = None) -> Op[Tenant]:
    """Return what one tenant has, with its neighbours."""
    until, name = state.until(timeout), key_bytes(key)
    seen = yield from sight(state, until)
    view, accounts = seen.view, (yield from _accounts(state, until))
    found = yield from _detail(state, seen, name, None, until)
    if found.in_streams or view.config.parents:
        held = [each for each, account in accounts.items() if account.held_back]
        age = _age(seen, (yield from wait_of(state, view, name, found.in_streams, held, until)))
        found = replace(
            found, oldest_age=max((each for each in (age, found.oldest_age) if each is not None), default=None)
        )
    if not found.streams:
        return found
    backlogs = {other: account.backlog for other, account in accounts.items() if other != name and account.backlog}
    streams, near = set(found.streams), list[Neighbour]()
    for other in heapq.nlargest(CANDIDATES, backlogs, key=lambda each: (backlogs[each], each)):
        if shared := len(streams.intersection(view.shard(text_or_bytes(other)))):
            near.append(Neighbour(text_or_bytes(other), shared, backlogs[other]))
    near.sort(key=lambda each: (-each.shared, -each.backlog, key_bytes(each.shard_key)))
    return replace(found, neighbours=tuple(near[:NEIGHBOURS]))


def _ranks(order: str, accounts: Mapping[bytes, Account], waits: Waits | None) -> Mapping[bytes, float]:
    if order == "oldest":
        return {name: -ms for name, ms in (waits or {}).items()}
    if order == "held_back":
        return {name: each.held_back for name, each in accounts.items() if each.held_back}
    return {name: each.backlog for name, each in accounts.items() if each.backlog or each.delayed}


def _accounts(state: QueueState, until: float) -> Op[dict[bytes, Account]]:
    found: dict[bytes, Account] = {}
    cursor: Argument = "0"
    while cursor != b"0":
        reply = yield from _ask(state, until, Call.on(state.keys, "accounts", (cursor, PAGE)))
        if not reply:
            raise missing(state)
        if reply[0] == b"PLAIN":
            raise ConfigError(
                f"queue {state.keys.name!r} has no window, so it does not know its shard keys: "
                "configure(window=1) switches the window on"
            )
        cursor, rows = reply
        found |= {field[0 if NEW else 2 :]: account_of(text) for field, text in _pairs(rows)}
    return found


def _in_flight(state: QueueState, view: QueueView, until: float) -> Op[Counter[bytes]]:
    found: Counter[bytes] = Counter()
    cursor: Argument = "0"
    while cursor != b"0":
        cursor, rows = yield from _ask(state, until, Call.on(state.keys, "leased", (cursor, LEASES)))
        for key, number in _pairs(rows):
            found[tenant_of(view, key)] += number
    return found


def _detail(state: QueueState, seen: Sight, name: bytes, waits: Waits | None, until: float) -> Op[Tenant]:
    """Return one tenant. If *waits* are given, they say since when it waits."""
    streams = () if waits is not None else _streams(seen.view, name)[:LOOKED_AT]
    if NEW:
        call = Call.on(state.keys, "tenant", (name,), rest=tuple(map(state.keys.stream, streams)))
        now, text, weight, limits, oldest = yield from _ask(state, until, call)
        found = _tenant(seen.view, name, (now, text, b"%d" % account_of(text).in_flight, weight, limits, oldest), 0)
        return found if waits is None else replace(found, oldest_age=_age(seen, waits.get(name)))
    reply = yield from _ask(state, until, _call(state, name, streams, 0))
    leased, at = reply[6], reply[7]
    while at != b"":
        more = yield from _ask(state, until, _call(state, name, (), at))
        leased, at = leased + more[6], more[7]
    found = _tenant(seen.view, name, reply, leased)
    return found if waits is None else replace(found, oldest_age=_age(seen, waits.get(name)))


def _call(state: QueueState, name: bytes, streams: Sequence[int], leases: int) -> Call:
    rest = tuple(map(state.keys.stream, streams))
    return Call.on(state.keys, "tenant", (name, ",".join(map(str, streams)), leases), rest=rest)


def _age(seen: Sight, since: int | None) -> float | None:
    return None if since is None else max(0, round(seen.time * 1000) - since) / 1000


def _tenant(view: QueueView, name: bytes, reply: Sequence[Any], leased: int) -> Tenant:
    now, text, counted, weight, limits, oldest, *_ = reply
    account, own, end = account_of(text), Limits(), 0.0
    if limits:
        own, end = parsed_limits(limits.decode())
    is_parent = bool(view.config.parents)
    return Tenant(
        shard_key=text_or_bytes(name),
        backlog=account.backlog,
        in_streams=account.in_streams,
        held_back=account.held_back,
        withheld=account.withheld,
        delayed=account.delayed,
        in_flight=int(counted) if counted else None if is_parent else leased,
        oldest_age=max(0, now - int(oldest)) / 1000 if oldest else None,
        weight=int(weight),
        limits=own,
        paused_until=end_of_pause(end) if end > now else None,
        streams=_streams(view, name),
    )


def _streams(view: QueueView, name: bytes) -> tuple[int, ...]:
    return () if view.config.parents else tuple(view.shard(text_or_bytes(name)))


def _ask(state: QueueState, until: float, call: Call) -> Op[Any]:
    return (yield from retry_until(_same(call), until, state.clock))


def _same(call: Call) -> Callable[[bool], Call]:
    return lambda _: call


def _pairs(rows: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    return zip(rows[::2], rows[1::2], strict=True)
