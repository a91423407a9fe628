"""The changes until Redis has what a file declares: it asks Redis, and the package `declared` compares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardq.declared import Change, Declaration, Found, of_queue, of_router
from shardq.errors import QueueMissing
from shardq.model import QueueConfig

if TYPE_CHECKING:
    from shardq.client import Client, Queue


def changes(client: Client, declared: Declaration) -> list[Change]:
    """Return what must change until Redis has what is *declared*, in the order in which it can be changed.

    All that is not named stays as it is, as `of_queue` says, and so do bindings of other routers, and those of queues
    that the file does not name. ShardqError if a change is known to be impossible.
    """
    found: list[Change] = []
    for each in declared.queues:
        found += of_queue(client, each, _found(client.queue(each.name)))
    named = {each.name for each in declared.queues}
    for router, bindings in declared.bindings.items():
        found += of_router(client, router, bindings, client.router(router).bindings(), named)
    return found


def settings_of(queue: Queue) -> QueueConfig | None:
    """Return the queue's settings; None if it does not exist."""
    try:
        return queue.settings()
    except QueueMissing:
        return None


def _found(queue: Queue) -> Found | None:
    """Return what Redis has of a queue; None if it does not exist."""
    settings = settings_of(queue)
    return None if settings is None else Found(settings, queue.controls(), queue.assignment())
