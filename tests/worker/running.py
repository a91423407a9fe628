"""A worker of either kind of client at work in a thread of the test, with handlers that both can run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any, Self, cast

from shardq import AsyncClient, AsyncWorker, Client, Worker
from shardq.model import DeliveryView
from shardq.worker.application import Application
from tests.clients import ClientKind
from tests.waiting import eventually

Handle = Callable[[DeliveryView], Any] | Application
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


class RunningWorker:
    """`with RunningWorker(...) as begun`: at work until `stop`; `failure` is what `run` raised.

    *queue* names one or several. An AsyncWorker gets a plain handler as a coroutine function, unless it shall have it
    *as_it_is*.
    """

    def __init__(
        self, client_kind: ClientKind, url: str, queue: str | Sequence[str], handle: Handle, **settings: Any
    ) -> None:
        self._client_kind, self._url, self._handle = client_kind, url, handle
        self._names = [queue] if isinstance(queue, str) else queue
        self._client_settings, self._as_it_is = settings.pop("client", {}), settings.pop("as_it_is", False)
        self._settings = settings
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

    def _run(self) -> None:
        try:
            if self._client_kind == "sync":
                self._run_threads()
            else:
                asyncio.run(self._run_tasks())
        except BaseException as error:  # noqa: BLE001 (looked at by the test)
            self.failure = error

    def _run_threads(self) -> None:
        with Client.from_url(self._url, **self._client_settings) as client:
            queues = {client.queue(name, create=True): 1 for name in self._names}
            self.worker = Worker(queues, self._handle, **self._settings)
            self.worker.run()

    async def _run_tasks(self) -> None:
        handle = self._handle

        async def plain(delivery: DeliveryView) -> Any:
            return cast("Callable[[DeliveryView], Any]", handle)(delivery)

        chosen: Handle = handle.asynchronous if isinstance(handle, Gate) else plain
        if self._as_it_is or asyncio.iscoroutinefunction(handle) or isinstance(handle, Application):
            chosen = handle
        async with AsyncClient.from_url(self._url, **self._client_settings) as client:
            queues = {client.queue(name, create=True): 1 for name in self._names}
            self.worker = AsyncWorker(queues, chosen, **self._settings)
            await self.worker.run()
