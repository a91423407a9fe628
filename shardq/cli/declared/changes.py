"""How Redis differs from a declaration, as changes that can be shown and made, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from shardq.cli.declared.declaration import Declaration, DeclaredQueue
from shardq.client import Client, Queue
from shardq.model import Limits, QueueConfig
from shardq.routing import Binding


@dataclass(frozen=True)
class Change:
    """One change: of what (`queue "jobs"`), what it is in words, and how it is made."""

    what: str
    text: str
    make: Callable[[], object]


def changes(client: Client, declared: Declaration) -> list[Change]:
    """Return what must change until Redis has what is *declared*, in the order in which it can be changed.

    What is not named stays as it is: settings, the weights and limits of a queue without a table of them, bindings of
    other routers, and those of queues that the file does not name.
    """
    found: list[Change] = []
    for each in declared.queues:
        found += _of_queue(client, each)
    named = {each.name for each in declared.queues}
    for router, bindings in declared.bindings.items():
        found += _of_router(client, router, bindings, named)
    return found


def _of_queue(client: Client, declared: DeclaredQueue) -> Iterator[Change]:
    what = f"queue {declared.name!r}"
    queue = client.queue(declared.name)
    if not queue.stats().streams:
        given = ", ".join(f"{name}={_shown(value)}" for name, value in declared.settings.items()) or "the defaults"
        made = client.queue(declared.name, create=True, **declared.settings)
        yield Change(what, f"create it with {given}", made.declare)
        actual, weights, limits = made.state.requested, dict[str | bytes, int](), dict[str | bytes, Limits]()
        assigned, overlap = set[str](), None
    else:
        actual, weights, limits, stored = queue.settings(), queue.weights(), queue.limits(), queue.assignment()
        assigned, overlap = {key.decode(errors="replace") for key, _ in stored.items()}, stored.max_overlap
    yield from _settings(queue, what, declared.settings, actual)
    yield from _weights(queue, what, declared.weights, weights)
    yield from _limits(queue, what, declared.limits, limits)
    if missing := [key for key in declared.assigned if key not in assigned]:
        text = f"assign shards to {len(missing):,} shard keys, such as {missing[0]!r}"
        yield Change(what, text, partial(queue.assign, declared.assigned, max_overlap=declared.max_overlap))
    elif declared.assigned and declared.max_overlap not in (None, overlap):
        text = f"let assigned shards share {declared.max_overlap} streams at most (now {overlap})"
        yield Change(what, text, partial(queue.assign, declared.assigned, max_overlap=declared.max_overlap))


def _settings(queue: Queue, what: str, wanted: Mapping[str, Any], actual: QueueConfig) -> Iterator[Change]:
    differ = {name: value for name, value in wanted.items() if getattr(actual, name) != value}
    streams = differ.pop("streams", None)
    if differ:
        text = ", ".join(f"{name}: {_shown(getattr(actual, name))} -> {_shown(to)}" for name, to in differ.items())
        yield Change(what, text, partial(queue.configure, **differ))
    if streams is not None:
        yield Change(what, f"streams: {actual.streams} -> {streams}", partial(queue.resize, streams))


def _weights(
    queue: Queue, what: str, wanted: Mapping[str, int] | None, actual: Mapping[str | bytes, int]
) -> Iterator[Change]:
    if wanted is None:
        return
    goal = dict.fromkeys(actual, 1)
    goal.update(wanted.items())
    differ = {key: weight for key, weight in goal.items() if actual.get(key, 1) != weight}
    for key, weight in differ.items():
        text = f"weight of {key!r}: {actual.get(key, 1)} -> {weight}"
        yield Change(what, text, partial(queue.set_weights, {key: weight}))


def _limits(
    queue: Queue, what: str, wanted: Mapping[str, Limits] | None, actual: Mapping[str | bytes, Limits]
) -> Iterator[Change]:
    if wanted is None:
        return
    goal = dict.fromkeys(actual, Limits())
    goal.update(wanted.items())
    for key, limits in goal.items():
        if (before := actual.get(key, Limits())) != limits:
            text = f"limits of {key!r}: {named(before)} -> {named(limits)}"
            yield Change(what, text, partial(queue.set_limits, {key: limits}))


def named(limits: Limits) -> str:
    """Return limits in words."""
    named = [f"{name}={number:g}" for name, number in asdict(limits).items() if number is not None]
    return " ".join(named) or "none"


def _of_router(client: Client, router: str, wanted: frozenset[Binding], named: set[str]) -> Iterator[Change]:
    actual = set(client.router(router).bindings())
    for binding in sorted(wanted - actual):
        make = partial(client.bind, binding.pattern, binding.queue, router=router)
        yield Change(f"router {router!r}", f"bind {binding.pattern!r} to {binding.queue!r}", make)
    for binding in sorted(each for each in actual - wanted if each.queue in named):
        make = partial(client.unbind, binding.pattern, binding.queue, router=router)
        yield Change(f"router {router!r}", f"unbind {binding.pattern!r} from {binding.queue!r}", make)


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)
