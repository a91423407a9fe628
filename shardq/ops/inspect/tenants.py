"""Tenants of a queue and what they have in it: by their backlog, by what they have in flight, by how long they wait.

A survey reads pages of the queue's own accounts as they are stored, by plain commands: a script that takes them apart
and tells only the first of each page costs the server three to five times as much, and both together no less. Each
page takes less than 1 ms of the server, however many tenants there are; the order is made here. It is not one instant.
Pages are not asked for together, since the server would serve nobody else between two of them. Only those that are
shown are looked at closely, some in one call. The longest waits are mostly found without the accounts: see `ages`.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from msgspec.structs import replace

from shardq.arguments import flag, one_of, whole
from shardq.errors import ConfigError
from shardq.model.limits import Limits
from shardq.model.tenant import Neighbour, Tenant
from shardq.ops.inspect.ages import Waits, first_waits, tenant_of, waits_in_streams
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
MAX_LIMIT: Final = 1000
FIELDS_A_CALL: Final = 1000
"""Fields of the state that one call looks at."""
OWN_STREAMS: Final = 16
"""Streams of a tenant that are searched for its oldest message, where not all that waits is looked at."""
STREAMS_AT_ONCE: Final = 64
"""Streams that one call searches for the oldest messages of those that are shown."""
NAMES_AT_ONCE: Final = 50
"""Tenants that one call looks at closely."""
FEW_MESSAGES: Final = 10_000
"""Messages in the streams up to which all are looked at for the ages of those that are shown, where needed."""
MAX_CHANGED: Final = 1000
"""Leases that ended, and tenants with something that came due, that are looked at before a read has seen them."""
CHANGED_AT_ONCE: Final = 150
NEIGHBOURS: Final = 10
_NUMBER: Final = re.compile(rb"\d+")


class Account(NamedTuple):
    """The numbers of an account: undelivered in the streams, held back, held back for limits, delayed, in flight.

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
        """Whether its first message may lie outside of the streams: new ones there came after those in streams."""
        return self.held_back > 0 and (not self.in_streams or self.returned > 0)

    @property
    def backlog(self) -> int:
        """All that waits."""
        return self.in_streams + self.held_back

    def rank(self, order: str) -> int:
        """How much it has of what an order names; below 0 if it is not in the order."""
        if order == "in_flight":
            return self.in_flight or -1
        if order == "time":
            return self.ahead or -1
        if order == "held_back":
            return self.held_back or -1
        # Those with delayed messages alone come last, by 0: they are tenants of the queue, too.
        return self.backlog or (0 if self.delayed else -1)


def stored_account(text: bytes, virtual: int) -> Account:
    """Read an account as it is stored (lua/accounts.lua), beside the queue's *virtual* time, but for what limits block.

    A text that something else wrote counts as nothing.
    """
    words = text.split(b" ")
    try:
        if len(words) == 1:
            both, served, waits = (*text.split(b":", 3), b"", b"")[:3]
            in_flight, in_streams = divmod(int(both), 1000)
            return Account(in_streams, int(waits or 0), 0, 0, in_flight, max(0, int(served or 0) - virtual))
        in_streams, in_flight, held, returned, delayed = map(int, words[:5])
        ahead = 0 if words[5] == b"-" else max(0, round(float(words[5])) - virtual)
    except (ValueError, IndexError):
        return Account()
    return Account(in_streams, held, 0, delayed, in_flight, ahead, returned)


def account_of(text: bytes) -> Account:
    """Read an account as the verbs `present` and `tenant` tell it."""
    in_streams, in_flight, held, limited, delayed, ahead = map(int, text.split(b"|"))
    return Account(in_streams, held, limited, delayed, in_flight, ahead, returned=held)


class TenantSurvey(NamedTuple):
    """The tenants that come first, and messages `in_streams`; `waits` says since when they wait, if that is known."""

    names: Sequence[bytes]
    in_streams: int = 0
    waits: Waits | None = None


def tenants(state: QueueState, order: str, limit: int, start: int, timeout: float | None = None) -> Op[list[Tenant]]:
    """Return the tenants from rank *start* on, at most *limit*, those first that have most of what *order* names."""
    one_of("order", order, ORDERS)
    whole("limit", limit, 1, MAX_LIMIT)
    whole("start", start, 0, 2**40)
    until = state.until(timeout)
    seen = yield from sight(state, until) if order in BOUNDS else _knowing(state, until)
    if order == "oldest":
        found = yield from _oldest(state, seen, start + limit, until)
    else:
        found = yield from _most(state, seen, order, start + limit, until)
    return (yield from _details(state, seen, found._replace(names=found.names[start:]), until))


def tenant(
    state: QueueState, key: str | bytes, timeout: float | None = None, *, neighbours: bool = False
) -> Op[Tenant]:
    """Return what one tenant has, with its *neighbours* if asked for: in 3 calls, however many others there are."""
    until, name = state.until(timeout), key_bytes(key)
    seen = yield from _knowing(state, until)
    streams = _searched(seen.view, name)
    # After a resize its messages may be in any stream.
    others = [number for number in _first_streams(seen.view) if number not in streams]
    heads = len(streams) if flag("neighbours", neighbours) else 0
    reply = yield from _look(state, (name,), (*streams, *others), until, heads=heads)
    now, [row], near = reply
    found = _tenant(seen.view, name, now, row)
    return replace(found, neighbours=_near(seen.view, found.streams, near))


def _near(view: QueueView, streams: Sequence[int], others: Sequence[Any]) -> tuple[Neighbour, ...]:
    near = [
        Neighbour(text_or_bytes(other), shared, backlog)
        for other, backlog in zip(others[::2], others[1::2], strict=True)
        if (shared := len(set(streams).intersection(view.shard(text_or_bytes(other)))))
    ]
    near.sort(key=lambda each: (-each.shared, -each.backlog, key_bytes(each.shard_key)))
    return tuple(near[:NEIGHBOURS])


def leaders(
    state: QueueState, count: int, also: Collection[bytes], timeout: float | None = None
) -> Op[tuple[list[bytes], list[bytes]]]:
    """Return the *count* tenants with most waiting, and the *count* of *also* with most waiting, in their order."""
    until = state.until(timeout)
    seen = yield from _knowing(state, until)
    ranks, _ = yield from _ranks(state, seen, "backlog", until)
    some = {name: ranks[name] for name in also if name in ranks}
    return _first(ranks, count), _first(some, count)


def named(
    state: QueueState, names: Sequence[bytes], timeout: float | None = None, *, ages: bool = False, in_streams: int = 0
) -> Op[list[Tenant]]:
    """Return what tenants of these *names* have: one call for 50 of them.

    With *ages* also for how long anything has waited, as `tenants` has it; *in_streams* is how many messages are in the
    streams. That takes some calls more.
    """
    until = state.until(timeout)
    seen = yield from _knowing(state, until)
    return (yield from _details(state, seen, TenantSurvey(names, in_streams, None if ages else {}), until))


class Census(NamedTuple):
    """All tenants that have something, at about the server's `time`: their accounts, and their dead letters.

    `in_streams` is how many messages are in the streams. Nobody asked for what limits blocked.
    """

    time: float
    accounts: Mapping[bytes, Account]
    dead: Mapping[bytes, int]
    in_streams: int


def census(state: QueueState, timeout: float | None = None) -> Op[Census]:
    """Read the accounts of all tenants, a thousand in a call. Errors as of `tenants`."""
    until = state.until(timeout)
    seen = yield from _knowing(state, until)
    virtual, in_streams = yield from _line(state, until)
    accounts: dict[bytes, Account] = {}
    dead: dict[bytes, int] = {}
    known: dict[bytes, Account] = {}  # many say the same
    cursor: Argument = "0"
    while cursor != b"0":
        key = state.keys.meta
        cursor, flat = yield from ask(
            state, "HSCAN", key, cursor, "MATCH", "[tX]:*", "COUNT", FIELDS_A_CALL, until=until
        )
        for name, text in zip(flat[::2], flat[1::2], strict=True):
            if name.startswith(b"X"):
                dead[name[2:]] = _used(text)
                continue
            account = known.get(text)
            if account is None:
                known[text] = account = stored_account(text, virtual)
            accounts[name[2:]] = account
    accounts.update((yield from _changed_by_time(state, seen, until)))
    return Census(seen.time, accounts, dead, in_streams)


def _most(state: QueueState, seen: Sight, order: str, count: int, until: float) -> Op[TenantSurvey]:
    """Return the *count* that have most of what *order* names."""
    ranks, in_streams = yield from _ranks(state, seen, order, until)
    return TenantSurvey(_first(ranks, count), in_streams)


def _first(ranks: Mapping[bytes, int], count: int) -> list[bytes]:
    """Return the names of the *count* with the largest ranks."""
    # By name where ranks are the same, so that two pages show nobody twice.
    first = heapq.nsmallest(count, ((-rank, name) for name, rank in ranks.items() if rank >= 0))
    return [name for _, name in first]


def _ranks(state: QueueState, seen: Sight, order: str, until: float) -> Op[tuple[dict[bytes, int], int]]:
    """Return how much each tenant has of what *order* names, and the messages in the streams if these count."""
    in_streams = 0
    if kind := BOUNDS.get(order):
        ranks = yield from _read_all(state, kind, _used, until)
    else:
        virtual, in_streams = yield from _line(state, until)
        ranks = yield from _read_all(state, "t:", lambda text: stored_account(text, virtual).rank(order), until)
        for name, each in (yield from _changed_by_time(state, seen, until)).items():
            ranks[name] = each.rank(order)
    return ranks, in_streams


def _used(text: bytes) -> int:
    number = _NUMBER.match(text)
    return int(number[0]) if number else 0


def _line(state: QueueState, until: float) -> Op[tuple[int, int]]:
    """Return the queue's virtual time, and how many messages are in the streams."""
    line, shared = yield from ask(state, "HMGET", state.keys.meta, "line", "shared", until=until)
    if not line:
        raise missing(state)
    return int(line.split(b" ")[0]), int(shared or 0)


def _read_all(state: QueueState, kind: str, read: Callable[[bytes], int], until: float) -> Op[dict[bytes, int]]:
    """Read what each field of the state says whose name begins with *kind*, by the rest of its name."""
    found: dict[bytes, int] = {}
    known: dict[bytes, int] = {}  # many say the same
    cursor: Argument = "0"
    while cursor != b"0":
        key = state.keys.meta
        cursor, flat = yield from ask(
            state, "HSCAN", key, cursor, "MATCH", f"{kind}*", "COUNT", FIELDS_A_CALL, until=until
        )
        for name, text in zip(flat[::2], flat[1::2], strict=True):
            number = known.get(text)
            if number is None:
                known[text] = number = read(text)
            found[name[len(kind) :]] = number
    return found


def _oldest(state: QueueState, seen: Sight, count: int, until: float) -> Op[TenantSurvey]:
    """Return the *count* that wait longest, and since when."""
    reply = yield from _ask(state, until, Call.on(state.keys, "outside"))
    if not reply:
        raise missing(state)
    is_all, ready, outside = reply
    names = set(outside)
    if not is_all:
        found = yield from _read_all(state, "t:", lambda text: stored_account(text, 0).waits_outside, until)
        names.update(name for name, waits in found.items() if waits)
    streams = [number for number, digit in enumerate(ready) if digit == ord("1")]
    waits = yield from first_waits(state, seen.view, sorted(names), streams, count, until)
    first = heapq.nsmallest(count, waits.items(), key=lambda each: (each[1], each[0]))
    return TenantSurvey([name for name, _ in first], waits=waits)


def _changed_by_time(state: QueueState, seen: Sight, until: float) -> Op[dict[bytes, Account]]:
    """Return the present accounts of tenants with leases that ended, or messages that came due, unseen by any read."""
    now, keys = int(seen.time * 1000), state.keys
    some = ("LIMIT", 0, MAX_CHANGED)
    names = yield from ask(state, "ZRANGEBYSCORE", keys.due, "-inf", f"{now}.999", *some, until=until)
    tokens = yield from ask(state, "ZRANGEBYSCORE", keys.leases, "-inf", now, *some, until=until)
    leases = filter(None, map(lease_of, tokens))
    changed = sorted({*names, *(tenant_of(seen.view, each.shard_key or b"") for each in leases)})
    found: dict[bytes, Account] = {}
    for at in range(0, len(changed), CHANGED_AT_ONCE):
        call = Call.on(keys, "present", tuple(changed[at : at + CHANGED_AT_ONCE]))
        told = yield from _ask(state, until, call)
        found |= {name: account_of(text) for name, text in zip(told[::2], told[1::2], strict=True)}
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


def _details(state: QueueState, seen: Sight, survey: TenantSurvey, until: float) -> Op[list[Tenant]]:
    """Return the tenants of a survey, in its order."""
    found: dict[bytes, Tenant] = {}
    left: dict[bytes, int] = {}
    for names, streams in _together(seen.view, survey):
        now, rows, _ = yield from _look(state, names, streams, until)
        for name, row in zip(names, rows, strict=True):
            found[name] = each = _tenant(seen.view, name, now, row)
            if each.in_streams > row[-1]:
                left[name] = each.in_streams
    waits = survey.waits
    if waits is not None:
        return [replace(each, oldest_age=_age(seen, waits.get(name))) for name, each in found.items()]
    if left and survey.in_streams <= FEW_MESSAGES:
        for name, since in (yield from waits_in_streams(state, seen.view, left, until)).items():
            each = found[name]
            found[name] = replace(each, oldest_age=max(each.oldest_age or 0, _age(seen, since) or 0))
    return list(found.values())


def _together(view: QueueView, survey: TenantSurvey) -> Iterator[tuple[tuple[bytes, ...], Iterable[int]]]:
    """Divide those of a survey among calls: with their streams, unless it is known since when they wait."""
    names: list[bytes] = []
    streams: dict[int, None] = {}
    for name in survey.names:
        own = () if survey.waits is not None else _searched(view, name)
        if names and (len(names) == NAMES_AT_ONCE or len(streams.keys() | set(own)) > STREAMS_AT_ONCE):
            yield tuple(names), streams
            names, streams = [], {}
        names.append(name)
        streams |= dict.fromkeys(own)
    if names:
        yield tuple(names), streams


def _look(
    state: QueueState, names: Sequence[bytes], streams: Iterable[int], until: float, *, heads: int = 0
) -> Op[Sequence[Any]]:
    """Look at tenants, and at these streams for their messages."""
    call = Call.on(state.keys, "tenant", (heads, *names), rest=tuple(map(state.keys.stream, streams)))
    reply: Sequence[Any] = yield from _ask(state, until, call)
    if not reply:
        raise missing(state)
    return reply


def _age(seen: Sight, since: int | None) -> float | None:
    # Not below 0: the look at the queue may be older than the message.
    return None if since is None else max(0, round(seen.time * 1000) - since) / 1000


def _tenant(view: QueueView, name: bytes, now: int, row: Sequence[Any]) -> Tenant:
    text, weight, limits, plan, uses, oldest, _ = row
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


def _searched(view: QueueView, name: bytes) -> Sequence[int]:
    """Return the streams in which a tenant's oldest message is looked for."""
    return _first_streams(view) if view.config.parents else _streams(view, name)[:OWN_STREAMS]


def _first_streams(view: QueueView) -> range:
    return range(min(view.streams, STREAMS_AT_ONCE))


def _ask(state: QueueState, until: float, call: Call) -> Op[Any]:
    return (yield from retry_until(always(call), until, state.clock))
