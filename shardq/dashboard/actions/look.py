"""The basis of dialogs: a look at a queue, for all who ask within seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from shardq.client.async_queue import AsyncQueue
from shardq.dashboard import numbers
from shardq.dashboard.source import SceneSource
from shardq.model import Controls, QueueStats, Tenant
from shardq.model.action import ActionKind
from shardq.model.where import Where
from shardq.ops.operate import controls, counting
from shardq.ops.operate.counting import Counted
from shardq.ops.queue.change import Agree
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.outlook.foresight import Foresight
from shardq.outlook.names import LETTERS, name_of
from shardq.partitions import surveys
from shardq.partitions.over import over

State: TypeAlias = Mapping[str, object]
"""The facts that a dialog showed, each by its name, such as "the pause": the action is refused if one has changed."""
COUNTING_SECONDS: Final = 2.0
"""Seconds for which messages are counted that a filter selects: then the dialog says "at least"."""


def queue_of(source: SceneSource, name: str) -> AsyncQueue:
    """Return a queue, which is never created by that."""
    return source.client.queue(name, create=False)


async def foresight(source: SceneSource, queue: str) -> Foresight:
    """Return what changes would do to those that wait in a queue. NotThere if there is no such queue."""
    return Foresight((await numbers.look(source, queue)).facts)


async def counted(source: SceneSource, queue: str, kind: ActionKind, where: Where) -> Counted:
    """Return how many messages an action would be about. ConfigError if it cannot be about such."""
    state = queue_of(source, queue).state
    now = (await queue_of(source, queue).stats()).time
    op = over(state, lambda each: counting.glance(each, kind, where, now, seconds=COUNTING_SECONDS), surveys.counted)
    return await source.client.run(op)


async def stats_of(source: SceneSource, queue: str) -> QueueStats:
    """Return the numbers of a queue, as they are now."""
    return await queue_of(source, queue).stats()


async def tenant_of(source: SceneSource, queue: str, key: str | bytes) -> Tenant:
    """Return what a tenant has, as it is now."""
    return await queue_of(source, queue).tenant(key)


async def controls_of(source: SceneSource, queue: str, key: str | bytes | None) -> Controls:
    """Return what people set of a tenant and of the whole queue, as it is now. With a tenant there are all plans."""
    return await source.client.run(_controls(queue_of(source, queue).state, key))


def agree_on(
    source: SceneSource, queue: str, key: str | bytes | None, was: State, state_of: Callable[[Controls], State]
) -> Agree:
    """Return what looks once more, where an action is done, whether what people set is as the dialog showed it."""

    def ask() -> Op[bool]:
        return state_of((yield from _controls(queue_of(source, queue).state, key))) == was

    return ask


def _controls(state: QueueState, key: str | bytes | None) -> Op[Controls]:
    return controls.own_controls(state, some=True) if key is None else controls.controls(state, key)


def typed_name(key: str | bytes | None, queue: str) -> str:
    """Return the name that a person types before something of a tenant, or of a queue, is gone for good.

    It is the tenant's where one can type that: else the queue's, which has but letters, digits and a few signs.
    """
    is_plain = isinstance(key, str) and len(key) <= LETTERS and key.isprintable() and key == " ".join(key.split())
    return str(key) if is_plain and key else queue


def whose(key: str | bytes | None, queue: str) -> str:
    """Return whom an action is about, as it stands in a title."""
    return queue if key is None else f"{name_of(key)} in {queue}"
