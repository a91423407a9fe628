"""One interface for both clients: the asyncio client behind the signatures of the sync one, so one test drives both."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Literal, Self, TypeAlias, TypeVar, cast

from shardq import AsyncAction, AsyncClient, AsyncDelivery, AsyncQueue, AsyncWriter, Client
from shardq.client.async_schedules import AsyncSchedules

T = TypeVar("T")
ClientKind: TypeAlias = Literal["sync", "async"]
CLIENT_KINDS: tuple[ClientKind, ...] = ("sync", "async")
_TWINS = (AsyncAction, AsyncClient, AsyncQueue, AsyncDelivery, AsyncSchedules, AsyncWriter)
_RENAMED = {"close": "aclose"}
LIMIT = 150  # seconds: below the timeout of a test, so that a hang shows where it is


class Loop:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run *coroutine* on the loop and wait for what it returns."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(LIMIT)

    def stop(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Bridge:
    """An asyncio twin whose methods block: coroutines run on the loop, and what they return is bridged, too."""

    def __init__(self, twin: Any, loop: Loop) -> None:
        self._twin = twin
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return self._bridged(getattr(self._twin, _RENAMED.get(name, name)))

    def __repr__(self) -> str:
        return repr(self._twin)

    def __enter__(self) -> Self:
        self._loop.run(self._twin.__aenter__())
        return self

    def __exit__(self, *error: Any) -> None:
        self._loop.run(self._twin.__aexit__(*error))

    def __len__(self) -> int:
        return len(self._twin)

    def __bool__(self) -> bool:
        return bool(self._twin)  # Else Python would ask for the length, which most of them have not.

    def _bridged(self, value: Any) -> Any:
        if isinstance(value, _TWINS):
            return Bridge(value, self._loop)
        if isinstance(value, asyncio.Future):
            return BridgedFuture(value, self._loop)
        if isinstance(value, list):
            return [self._bridged(each) for each in value]
        if not inspect.ismethod(value):
            return value

        def call(*args: Any, **settings: Any) -> Any:
            result = value(*map(_twin, args), **{name: _twin(each) for name, each in settings.items()})
            return self._bridged(self._loop.run(result) if inspect.iscoroutine(result) else result)

        return call


class BridgedFuture:
    """A future of the loop, with the methods of a thread's."""

    def __init__(self, future: asyncio.Future[Any], loop: Loop) -> None:
        self._future, self._loop = future, loop

    def done(self) -> bool:
        """Whether there is an outcome."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> Any:
        """The outcome, once it is there."""
        return self._loop.run(self._outcome(timeout))

    async def _outcome(self, timeout: float | None) -> Any:
        await asyncio.wait([self._future], timeout=timeout)
        if not self._future.done():
            raise TimeoutError
        return await self._future


def _twin(value: Any) -> Any:
    """What a bridge stands for, also in a list."""
    if isinstance(value, list):
        return [_twin(each) for each in value]
    return value._twin if isinstance(value, Bridge) else value


@contextmanager
def opened(client_kind: ClientKind, url: str, **settings: Any) -> Iterator[Client]:
    """A client of that kind, to be called like a `Client` from any thread."""
    if client_kind == "sync":
        with Client.from_url(url, **settings) as client:
            yield client
        return
    loop = Loop()
    bridge = Bridge(AsyncClient.from_url(url, **settings), loop)
    try:
        yield cast("Client", bridge)
    finally:
        bridge.close()
        loop.stop()
