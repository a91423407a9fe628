"""People's deeds on queues: pauses, limits and weights that still hold, and actions of the last day."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

from shardq.client import AsyncClient
from shardq.dashboard import numbers
from shardq.dashboard.marked import Linked, here, spelled
from shardq.dashboard.source import SceneSource
from shardq.model.action import ActionKind, ActionStatus
from shardq.model.controls import Control, Controls
from shardq.model.limits import Limits
from shardq.model.wording import number, plural
from shardq.ops.operate.controls import own_controls
from shardq.outlook.names import name_of
from shardq.outlook.sentence import At, Bold, Parts

MAX_QUEUES: Final = 12
"""Queues that are asked for deeds."""
MAX_DEEDS: Final = 8
"""Deeds that are shown: the latest ones."""
FRESH_SECONDS: Final = 20.0
"""Seconds for which that is fresh."""
PAST_TENSES: Final[dict[ActionKind, tuple[str, str]]] = {
    "redrive": ("redrove", "dead letter"),
    "delete_dead": ("deleted", "dead letter"),
    "cancel": ("cancelled", "message"),
    "retry_now": ("tried again", "message"),
}
"""The words for somebody's deed with an action, and its object."""
TO_DO: Final[dict[ActionKind, str]] = {
    "redrive": "redrive", "delete_dead": "delete", "cancel": "cancel", "retry_now": "try",
}  # fmt: skip
"""The verb of each action in a sentence such as "mira began to redrive 40 messages"."""

Deed = tuple[float, Parts]


async def deeds(source: SceneSource, queues: Sequence[str]) -> list[dict[str, Any]]:
    """Return what people did to these queues, 12 at most, the latest first."""
    found = await numbers.of_each(queues[:MAX_QUEUES], lambda name: _of_queue(source, name))
    told = sorted((deed for each in found.values() for deed in each), key=lambda deed: -deed[0])
    return [{"at": at, "text": spelled(parts)} for at, parts in told[:MAX_DEEDS]]


async def _of_queue(source: SceneSource, queue: str) -> list[Deed]:
    client: AsyncClient = source.client
    admin = client.queue(queue, create=False)

    async def ask() -> list[Deed]:
        controls = await client.run(own_controls(admin.state, some=True))
        found = [*_controls(queue, controls), *_actions(queue, await admin.actions())]
        return sorted(found, key=lambda deed: -deed[0])[:MAX_DEEDS]

    return await numbers.of_queue(source, "deeds", queue, ask, FRESH_SECONDS)


def _controls(queue: str, found: Controls) -> Iterator[Deed]:
    for key, pause in found.paused.items():
        what: Parts = [" paused ", *_whom(key, queue)]
        yield from _deed(pause, found.time, what)
    for key, limited in found.limits.items():
        yield from _deed(limited, found.time, [" limited ", *_whom(key, queue), f" {_to(limited.limits)}"])
    for key, weighed in found.weights.items():
        yield from _deed(weighed, found.time, [" gave ", *_whom(key, queue), f" the weight {weighed.weight}"])


def _deed(control: Control, now: float, what: Parts) -> Iterator[Deed]:
    """Tell it, if it is known when it was."""
    if control.since is None:
        return
    end: Parts = [] if math.isinf(control.until) else [" until ", At(control.until, now)]
    note = f": {name_of(control.note)}" if control.note else ""
    yield control.since, [Bold(name_of(control.by) if control.by else "somebody"), *what, *end, note]


def _whom(key: str | bytes | None, queue: str) -> Parts:
    to_queue = Linked(queue, here(queue))
    return [to_queue] if key is None else [name_of(key), " in ", to_queue]


def _to(limits: Limits | str) -> str:
    if isinstance(limits, str):
        return f"by the plan {name_of(limits)}"
    told = [] if limits.rate is None else [f"to {limits.rate:g}/s" if limits.rate else "to no rate"]
    if limits.max_in_flight is not None:
        told.append(
            f"to {number(limits.max_in_flight)} in flight" if limits.max_in_flight else "to no number in flight"
        )
    return " and ".join(told) or "as all are"


def _actions(queue: str, found: Sequence[ActionStatus]) -> Iterator[Deed]:
    for each in found:
        did, what = PAST_TENSES[each.kind]
        problem = "" if each.state != "failed" else ", until it failed"
        stopped = ", until it was stopped" if each.state == "stopped" else problem
        of = Linked(queue, here(queue))
        who = Bold(name_of(each.by) if each.by else "somebody")
        is_new = not each.done and each.state in ("running", "stopping")
        told: Parts = [f" began to {TO_DO[each.kind]} {what}s"] if is_new else [f" {did} {plural(each.done, what)}"]
        yield each.started, [who, *told, " of ", of, stopped]
