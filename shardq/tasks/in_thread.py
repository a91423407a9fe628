"""A delivery of an AsyncWorker, as a plain function has it, which runs in a thread and can await nothing."""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import Any

from shardq.client import AsyncDelivery


class InThread:
    """It has all that the delivery has. What would be awaited is done in the event loop, while the thread waits."""

    def __init__(self, delivery: AsyncDelivery, loop: asyncio.AbstractEventLoop) -> None:
        vars(self).update(_delivery=delivery, _loop=loop)

    def __getattr__(self, name: str) -> Any:
        """Return what the delivery has under this name, as one that is not awaited."""
        found = getattr(self._delivery, name)
        return functools.partial(self._wait, found) if inspect.iscoroutinefunction(found) else found

    def __setattr__(self, name: str, value: object) -> None:
        """Set it of the delivery."""
        setattr(self._delivery, name, value)

    def _wait(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(function(*args, **kwargs), self._loop).result()
