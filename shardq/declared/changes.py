"""How Redis differs from a declaration, as changes that can be shown and made, one after the other.

Nothing here asks: the caller that compares has asked before, and says what it found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from msgspec.structs import asdict, replace

from shardq.assignment import Assignment
from shardq.declared.declaration import DeclaredQueue
from shardq.declared.feasible import check_feasible
from shardq.model import Control, Controls, LimitControl, Limits, Plan, QueueConfig, WeightControl
from shardq.model.settings import differs
from shardq.model.wording import ends_at
from shardq.routing import Binding

if TYPE_CHECKING:  # the command line's help imports nothing that speaks to Redis
    from shardq.client import AsyncClient, AsyncQueue, Client, Queue

AnyClient: TypeAlias = "Client | AsyncClient"
AnyQueue: TypeAlias = "Queue | AsyncQueue"
T = TypeVar("T")
SHARD_KEYS_A_CALL: Final = 400
"""Shard keys that are changed by one call, since each call moves the queue's epoch, which its clients must learn."""


class Change(NamedTuple):
    """One call's change: what it changes (`queue "jobs"`), in words, a line for each thing, and how it is made.

    With an asynchronous client `make` returns an awaitable.
    """

    what: str
    lines: tuple[str, ...]
    make: Callable[[], object]

    @property
    def title(self) -> str:
        """The change in one line, for an error."""
        more = len(self.lines) - 1
        return f"{self.what}: {self.lines[0]}" + (f" (and {more:,} more)" if more else "")


class Found(NamedTuple):
    """Redis's record of a queue that exists."""

    settings: QueueConfig
    controls: Controls
    assigned: Assignment


def of_queue(client: AnyClient, declared: DeclaredQueue, found: Found | None) -> Iterator[Change]:
    """Yield what must change until a queue is as *declared*, which is as *found* (None: it does not exist).

    All that is not named stays as it is: settings, and the weights and limits of a queue without a table of them. So do
    weights and limits that end by themselves, for shard keys that the file does not name; for those that it names they
    are replaced, and the line of the change says so. ShardqError if a change is known to be impossible.
    """
    what = f"queue {declared.name!r}"
    queue: AnyQueue = client.queue(declared.name)
    assigned = None
    if found is None:
        given = ", ".join(f"{name}={_shown(value)}" for name, value in declared.settings.items()) or "the defaults"
        made: AnyQueue = client.queue(declared.name, create=True, **declared.settings)
        yield Change(what, (f"create it with {given}",), made.declare)
        actual, controls = made.state.requested, Controls(0, {}, {}, {}, {})
    else:
        actual, controls, assigned = found
    plans = controls.plans
    check_feasible(declared, actual, replace(actual, **declared.settings), assigned, plans)
    yield from _settings(queue, what, declared.settings, actual)
    yield from _weights(queue, what, declared.weights, controls.weights)
    yield from _plans_set(queue, what, declared.plans or {}, plans)
    yield from _limits(queue, what, declared.limits, controls.limits)
    if declared.plans is not None:
        yield from _plans_deleted(queue, what, plans.keys() - declared.plans.keys())
    yield from _assigned(queue, what, declared, assigned)


def of_router(
    client: AnyClient, router: str, wanted: frozenset[Binding], actual: Iterable[Binding], named: set[str]
) -> Iterator[Change]:
    """Yield what must change until a router has the bindings that are *wanted*, for the queues that are *named*."""
    what, there = f"router {router!r}", set(actual)
    for binding in sorted(wanted - there):
        make = partial(client.bind, binding.pattern, binding.queue, router=router)
        yield Change(what, (f"bind {binding.pattern!r} to {binding.queue!r}",), make)
    for binding in sorted(each for each in there - wanted if each.queue in named):
        make = partial(client.unbind, binding.pattern, binding.queue, router=router)
        yield Change(what, (f"unbind {binding.pattern!r} from {binding.queue!r}",), make)


def _settings(queue: AnyQueue, what: str, wanted: Mapping[str, Any], actual: QueueConfig) -> Iterator[Change]:
    differ = {name: value for name, value in wanted.items() if differs(name, getattr(actual, name), value)}
    streams = differ.pop("streams", None)
    if differ:
        text = ", ".join(f"{name}: {_shown(getattr(actual, name))} -> {_shown(to)}" for name, to in differ.items())
        yield Change(what, (text,), partial(queue.configure, **differ))
    if streams is not None:
        yield Change(what, (f"streams: {actual.streams} -> {streams}",), partial(queue.resize, streams))


def _weights(
    queue: AnyQueue, what: str, wanted: Mapping[str, int] | None, actual: Mapping[str | bytes, WeightControl]
) -> Iterator[Change]:
    if wanted is None:
        return
    known = {key: (each.weight, each) for key, each in actual.items()}
    for some in _batches(_others(wanted, known, 1)):
        lines = (f"weight of {key!r}: {_now(known.get(key), str, '1')} -> {to}" for key, to in some.items())
        yield Change(what, tuple(lines), partial(queue.set_weights, some))


def _others(
    wanted: Mapping[str, T], actual: Mapping[str | bytes, tuple[T, Control]], none: T
) -> Iterator[tuple[str | bytes, T]]:
    """Return what is to be others of shard keys: *none* of those that are not wanted, but for what ends by itself."""
    goal: dict[str | bytes, T] = {key: none for key, (_, each) in actual.items() if math.isinf(each.until)}
    goal.update(wanted.items())
    for key, to in goal.items():
        now, control = actual.get(key, (none, None))
        if now != to or (control and not math.isinf(control.until)):
            yield key, to


def _now(actual: tuple[T, Control] | None, named: Callable[[T], str], none: str) -> str:
    """Return what somebody gave a shard key in words; if it has an end, with that and who gave it."""
    if actual is None:
        return none
    given, control = actual
    if math.isinf(control.until):
        return named(given)
    return f"{named(given)} (until {ends_at(control.until)}{f', by {control.by}' if control.by else ''})"


def _plans_set(queue: AnyQueue, what: str, wanted: Mapping[str, Plan], actual: Mapping[str, Plan]) -> Iterator[Change]:
    """Return the plans that change. They come before the limits that name them."""
    for name, plan in wanted.items():
        before = actual.get(name)
        if before is None or before.settings() != plan.settings():
            line = f"plan {name!r}: {'none' if before is None else named(before)} -> {named(plan)}"
            yield Change(what, (line,), partial(queue.set_plan, name, **plan.settings()))


def _plans_deleted(queue: AnyQueue, what: str, gone: Iterable[str]) -> Iterator[Change]:
    """Return the plans that go, when nobody is on them any more."""
    for name in sorted(gone):
        yield Change(what, (f"delete plan {name!r}",), partial(queue.delete_plan, name))


def _limits(
    queue: AnyQueue, what: str, wanted: Mapping[str, Limits | str] | None, actual: Mapping[str | bytes, LimitControl]
) -> Iterator[Change]:
    if wanted is None:
        return
    known = {key: (each.limits, each) for key, each in actual.items()}
    for some in _batches(_others(wanted, known, Limits())):
        lines = (f"limits of {key!r}: {_now(known.get(key), named, 'none')} -> {named(to)}" for key, to in some.items())
        yield Change(what, tuple(lines), partial(queue.set_limits, some))


def _assigned(queue: AnyQueue, what: str, declared: DeclaredQueue, stored: Assignment | None) -> Iterator[Change]:
    make = partial(queue.assign, declared.assigned, max_overlap=declared.max_overlap)
    if missing := [key for key in declared.assigned if stored is None or key not in stored]:
        yield Change(what, (f"assign shards to {len(missing):,} shard keys, such as {missing[0]!r}",), make)
    elif stored is not None and declared.assigned and declared.max_overlap not in (None, stored.max_overlap):
        text = f"let assigned shards share {declared.max_overlap} streams at most (now {stored.max_overlap})"
        yield Change(what, (text,), make)


def _batches(changed: Iterable[tuple[str | bytes, T]]) -> Iterator[dict[str | bytes, T]]:
    """Return what changes in dicts of at most `SHARD_KEYS_A_CALL` shard keys.

    Those that lose something come first, as given.
    """
    pairs = list(changed)
    for start in range(0, len(pairs), SHARD_KEYS_A_CALL):
        yield dict(pairs[start : start + SHARD_KEYS_A_CALL])


def named(limits: Limits | str) -> str:
    """Return limits in words."""
    if isinstance(limits, str):
        return f"plan {limits}"
    numbers = limits.settings() if isinstance(limits, Plan) else asdict(limits)
    named = [f"{name}={number:g}" for name, number in numbers.items() if number is not None]
    return " ".join(named) or "none"


def _shown(value: object) -> str:
    return "none" if value is None else str(value)
