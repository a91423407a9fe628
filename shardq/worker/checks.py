"""The parts of a worker must fit: queues of its kind, and a function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from shardq.arguments import one_of, whole
from shardq.client import AsyncQueue, Queue
from shardq.errors import ConfigError
from shardq.worker.application import Application
from shardq.worker.call import is_async

Q = TypeVar("Q", Queue, AsyncQueue)


def weights_of(jobs: Q | Mapping[Q, int], kind: type[Q], worker: str, other: str) -> dict[Q, int]:
    """Return the queues of a worker with their weights. ConfigError for queues of another *kind*, or bad weights."""
    given: Any = jobs  # mypy takes a queue for a mapping, too
    pairs: list[tuple[Q, int]] = [*given.items()] if isinstance(given, Mapping) else [(given, 1)]
    if not pairs:
        raise ConfigError(f"a {worker} needs a queue, or several with their weights, such as {{jobs: 3, mails: 1}}")
    for queue, weight in pairs:
        if not isinstance(queue, kind):
            article = "an" if worker[0] == "A" else "a"
            raise ConfigError(f"{article} {worker} takes a {kind.__name__}; for {type(queue).__name__} use {other}")
        whole(f"the weight of queue {queue.name!r}", weight, 1, 1000)
    if len({id(queue.client) for queue, _ in pairs}) > 1 or len({queue.name for queue, _ in pairs}) < len(pairs):
        raise ConfigError("the queues of a worker must be different ones, of one client")
    return dict(pairs)


def check_handle(handle: object, run_in: str) -> None:
    """ConfigError unless a worker can run *handle* like this."""
    one_of("run_in", run_in, ("threads", "processes"))
    if isinstance(handle, Application):
        if run_in == "processes":
            handle.check_forks()
    elif not callable(handle):
        raise ConfigError(f"the handler must be a function that takes a delivery, not {type(handle).__name__}")
    elif run_in == "processes" and is_async(handle):
        raise ConfigError("an async handler needs run_in='threads': a child process has no event loop")
