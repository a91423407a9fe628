"""What a `Worker` is made of must fit: a queue for threads, and a plain function."""

from __future__ import annotations

import inspect

from shardq.client import Queue
from shardq.errors import ConfigError


def checked(jobs: Queue, handle: object, run_in: str) -> Queue:
    """Return *jobs* if a `Worker` can run *handle* on it; else ConfigError."""
    if not isinstance(jobs, Queue):
        raise ConfigError(f"a Worker takes a Queue; for {type(jobs).__name__} use AsyncWorker")
    if not callable(handle):
        raise ConfigError(f"the handler must be a function that takes a delivery, not {type(handle).__name__}")
    if inspect.iscoroutinefunction(handle) or inspect.iscoroutinefunction(getattr(handle, "__call__", None)):  # noqa: B004
        raise ConfigError("an async handler needs an AsyncWorker, with a queue of an AsyncClient")
    if run_in not in ("threads", "processes"):
        raise ConfigError(f'run_in must be "threads" or "processes", not {run_in!r}')
    return jobs
