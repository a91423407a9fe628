"""Who has what in a queue: tenants by their backlog, by what they have in flight, by how long they wait.

A survey reads pages of the queue's own accounts. Each page is a script that only reads, and takes less than 2 ms of the
server, however many tenants there are; the order is made here. It is not one instant.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple

from shardq.arguments import whole
from shardq.errors import ConfigError, ShardqError
from shardq.model.limits import Limits
from shardq.model.tenant import Neighbour, Tenant
from shardq.ops.limiting import end_of_pause, parsed_limits
from shardq.ops.opening import missing
from shardq.ops.retry import retry_until
from shardq.ops.sight import sight
from shardq.ops.state import QueueState
from shardq.ops.steps import Argument, Call, Op
from shardq.ops.together import run_together
from shardq.ops.view import QueueView
from shardq.protocol.replies import text_or_bytes
from shardq.sharding import key_bytes

Order = Literal["backlog", "oldest", "in_flight", "held_back"]
ORDERS: Final[tuple[Order, ...]] = ("backlog", "oldest", "in_flight", "held_back")
MOST: Final = 1000
PAGE: Final = 500
LEASES: Final = 250
RUNS: Final = 150
WAITING: Final = 40
LOOKED_AT: Final = 16
"""So many of a tenant's streams are searched for its oldest message."""
NEIGHBOURS: Final = 10
CANDIDATES: Final = 1000
"""Neighbours are looked for among the tenants with the largest backlogs, so many."""


class Account(NamedTuple):
    """What an account says: undelivered in the streams, held back, of these for limits, delayed."""

    in_streams: int = 0
    held_back: int = 0
    withheld: int = 0
    delayed: int = 0

    @property
    def backlog(self) -> int:
        """All that waits."""
        return self.in_streams + self.held_back


def account_of(text: bytes) -> Account:
    """Read an account as lua/modules/accounts.lua writes it."""
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
    view = (yield from sight(state, until)).view
    ranks = yield from _ranks(state, view, order, until)
    first = heapq.nsmallest(start + limit, ranks.items(), key=lambda each: (-each[1], each[0]))[start:]
    return (yield from _details(state, view, [name for name, _ in first], until))


def tenant(state: QueueState, key: str | bytes, timeout: float | None = None) -> Op[Tenant]:
    """Return what one tenant has, with its neighbours."""
    until, name = state.until(timeout), key_bytes(key)
    view = (yield from sight(state, until)).view
    accounts = yield from _accounts(state, until)
    (found,) = yield from _details(state, view, [name], until)
    if not found.streams:
        return found
    backlogs = {other: account.backlog for other, account in accounts.items() if other != name and account.backlog}
    streams, near = set(found.streams), list[Neighbour]()
    for other in heapq.nlargest(CANDIDATES, backlogs, key=lambda each: (backlogs[each], each)):
        if shared := len(streams.intersection(view.shard(text_or_bytes(other)))):
            near.append(Neighbour(text_or_bytes(other), shared, backlogs[other]))
    near.sort(key=lambda each: (-each.shared, -each.backlog, key_bytes(each.shard_key)))
    return replace(found, neighbours=tuple(near[:NEIGHBOURS]))


def _ranks(state: QueueState, view: QueueView, order: str, until: float) -> Op[Mapping[bytes, float]]:
    accounts = yield from _accounts(state, until)
    if order == "in_flight":
        return (yield from _in_flight(state, view, until))
    if order == "oldest":
        return (yield from _oldest(state, view, until))
    if order == "held_back":
        return {name: each.held_back for name, each in accounts.items() if each.held_back}
    return {name: each.backlog for name, each in accounts.items() if each.backlog or each.delayed}


def _accounts(state: QueueState, until: float) -> Op[dict[bytes, Account]]:
    found: dict[bytes, Account] = {}
    cursor: Argument = "0"
    while cursor != b"0":
        reply = yield from _ask(state, until, Call.on(state.keys, "accounts", (cursor, PAGE)))
        if not reply:
            raise missing(state.keys.name)
        if reply[0] == b"PLAIN":
            raise ConfigError(
                f"queue {state.keys.name!r} has no window, so it does not know its shard keys: "
                "configure(window=1) switches the window on"
            )
        cursor, rows = reply
        found |= {field[2:]: account_of(text) for field, text in _pairs(rows)}
    return found


def _in_flight(state: QueueState, view: QueueView, until: float) -> Op[Counter[bytes]]:
    found: Counter[bytes] = Counter()
    cursor: Argument = "0"
    while cursor != b"0":
        cursor, rows = yield from _ask(state, until, Call.on(state.keys, "leased", (cursor, LEASES)))
        for key, number in _pairs(rows):
            found[_name(view, key)] += number
    return found


def _oldest(state: QueueState, view: QueueView, until: float) -> Op[dict[bytes, float]]:
    """The time at which each became deliverable, negated: the oldest has the most."""
    found: dict[bytes, float] = {}

    def note(rows: Sequence[Any]) -> None:
        for key, ms in _pairs(rows):
            name = _name(view, key)
            found[name] = max(found.get(name, -(2.0**60)), -float(ms))

    place: Argument = "("
    while place:
        place, rows = yield from _ask(state, until, Call.on(state.keys, "runs", (place, RUNS)))
        note(rows)
    for number in range(view.streams):
        after, returned = b"", b"0"
        is_over = False
        while not is_over:
            args = (number, after, returned, WAITING)
            call = Call.on(state.keys, "waiting", args, rest=(state.keys.stream(number),))
            after, reply, rows = yield from _ask(state, until, call)
            note(rows)
            is_over = returned == b"" and after == b""
            returned = reply if isinstance(reply, bytes) else b"%d" % reply
    return found


def _details(state: QueueState, view: QueueView, names: Sequence[bytes], until: float) -> Op[list[Tenant]]:
    results = yield from run_together([_detail(state, view, name, until) for name in names])
    for each in results:
        if isinstance(each, ShardqError):
            raise each
    return [each for each in results if isinstance(each, Tenant)]


def _detail(state: QueueState, view: QueueView, name: bytes, until: float) -> Op[Tenant]:
    reply = yield from retry_until(_same(_call(state, view, name, 0)), until, state.clock)
    leased, seen = reply[6], reply[7]
    while seen != b"":
        more = yield from retry_until(_same(_call(state, view, name, seen)), until, state.clock)
        leased, seen = leased + more[6], more[7]
    return _tenant(view, name, reply, leased)


def _call(state: QueueState, view: QueueView, name: bytes, seen: int) -> Call:
    streams = _streams(view, name)[:LOOKED_AT]
    rest = tuple(map(state.keys.stream, streams))
    return Call.on(state.keys, "tenant", (name, ",".join(map(str, streams)), seen), rest=rest)


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


def _name(view: QueueView, key: bytes) -> bytes:
    return (key.split(b"/")[0] or key) if view.config.parents else key


def _ask(state: QueueState, until: float, call: Call) -> Op[Any]:
    return (yield from retry_until(_same(call), until, state.clock))


def _same(call: Call) -> Callable[[bool], Call]:
    return lambda _: call


def _pairs(rows: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    return zip(rows[::2], rows[1::2], strict=True)
