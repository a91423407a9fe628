"""A worker of either kind of client at work in a thread of the test, with functions of either kind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from types import MappingProxyType
from typing import Any, Literal, Self, TypeAlias

from shardq import AsyncClient, AsyncWorker, Client, Worker
from shardq.model import DeliveryView
from shardq.tasks import Tasks
from shardq.worker.application import Application
from tests.clients import ClientKind
from tests.waiting import eventually

Handle = Callable[[DeliveryView], Any] | Application
FunctionKind: TypeAlias = Literal["plain", "async"]
FUNCTION_KINDS: tuple[FunctionKind, ...] = ("plain", "async")
QueueOf: TypeAlias = str | Tasks[Any]
"""A queue of this name, or that of these Tasks."""
LIMIT = 90.0


class Gate:
    """Holds handlers until it is opened; knows who is inside and who was told to leave."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.inside: list[DeliveryView] = []
        self.told: list[DeliveryView] = []
        self.done: list[DeliveryView] = []

    def __call__(self, delivery: DeliveryView) -> None:
        """Wait in a thread; leave when told that the lease is lost."""
        self.inside.append(delivery)
        while not self.open.wait(0.002):
            if delivery.lost:
                self.told.append(delivery)
                return
        self.done.append(delivery)

    async def asynchronous(self, delivery: DeliveryView) -> None:
        """Wait in a task; leave when cancelled."""
        self.inside.append(delivery)
        try:
            while not self.open.is_set():  # noqa: ASYNC110 (threads open it)
                await asyncio.sleep(0.002)
        except asyncio.CancelledError:
            self.told.append(delivery)
            raise
        self.done.append(delivery)


def of_kind(kind: FunctionKind, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return *function* itself, or a coroutine function that calls it; of a Gate, the one that waits in a task."""
    if kind == "plain":
        return function
    if isinstance(function, Gate):
        return function.asynchronous

    @wraps(function)
    async def coroutine(*args: Any, **named: Any) -> Any:
        return function(*args, **named)

    return coroutine


def run_worker(
    client_kind: ClientKind,
    url: str,
    queues: Mapping[QueueOf, int],
    handle: Handle,
    *,
    ready: Callable[[Any, Callable[[], object]], object] = lambda *_: None,
    over: Callable[[], object] = lambda: None,
    client: Mapping[str, Any] = MappingProxyType({}),
    **settings: Any,
) -> Worker | AsyncWorker:
    """Run a worker of that kind in this thread, with a client that has the settings *client*. Return it.

    *ready* is told the worker, and what closes its client; *over* is called when `run` has returned, in its loop still.
    """
    if client_kind == "sync":
        with Client.from_url(url, **client) as opened:
            worker = Worker(_queues(opened, queues), handle, **settings)
            ready(worker, opened.close)
            worker.run()
            over()
        return worker

    async def run() -> AsyncWorker:
        loop = asyncio.get_running_loop()
        async with AsyncClient.from_url(url, **client) as opened:
            worker = AsyncWorker(_queues(opened, queues), handle, **settings)
            ready(worker, lambda: asyncio.run_coroutine_threadsafe(opened.aclose(), loop))
            await worker.run()
            over()
        return worker

    return asyncio.run(run())


def _queues(client: Any, queues: Mapping[QueueOf, int]) -> dict[Any, int]:
    return {
        client.queue(each, create=True) if isinstance(each, str) else client.queue(each): weight
        for each, weight in queues.items()
    }


class RunningWorker:
    """`with RunningWorker(...) as begun`: at work until `stop`; `failure` is what `run` raised.

    *queue* names one or several, or has their Tasks. A handler that is no coroutine function becomes one if *functions*
    says so: that of an AsyncWorker does, unless it says otherwise.
    """

    def __init__(
        self,
        client_kind: ClientKind,
        url: str,
        queue: QueueOf | Sequence[str],
        handle: Handle,
        *,
        functions: FunctionKind | None = None,
        **settings: Any,
    ) -> None:
        queues = dict.fromkeys([queue] if isinstance(queue, (str, Tasks)) else queue, 1)
        if not isinstance(handle, Application) and not asyncio.iscoroutinefunction(handle):
            handle = of_kind(functions or ("plain" if client_kind == "sync" else "async"), handle)
        self._begin = partial(run_worker, client_kind, url, queues, handle, ready=self._is_ready, **settings)
        self.worker: Worker | AsyncWorker | None = None
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="begun", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        eventually(lambda: self.worker is not None or self.failure is not None)
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            self.stop()

    def stop(self, *, wait: bool = True) -> None:
        """Ask it to stop, and wait for the end."""
        assert self.worker
        self.worker.stop()
        if wait:
            self.join()

    def join(self) -> None:
        """Wait for the end."""
        self._thread.join(LIMIT)
        assert not self._thread.is_alive(), "the worker does not end"

    def _is_ready(self, worker: Worker | AsyncWorker, close: Callable[[], object]) -> None:
        self.worker, self.close_client = worker, close

    def _run(self) -> None:
        try:
            self._begin()
        except BaseException as error:  # noqa: BLE001 (looked at by the test)
            self.failure = error
