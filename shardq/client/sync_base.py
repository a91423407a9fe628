"""The parts of the client for threads alone: timer, driver, the threads of its writers, its life after a fork."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Unpack

from shardq.arguments import whole
from shardq.client.base import BaseClient, ClientSettings
from shardq.client.leases import Leases
from shardq.client.sync_stands import Stands
from shardq.drivers import Driver, Target
from shardq.drivers.posting import Posting
from shardq.errors import ClosedError, ShardqError
from shardq.ops.queue.steps import Op
from shardq.platforms import after_fork
from shardq.timing import ThreadTimer
from shardq.timing.aside import Aside

_clients: weakref.WeakSet[SyncBaseClient] = weakref.WeakSet()


def _after_fork() -> None:
    for client in list(_clients):
        client._forked()


after_fork(_after_fork)


def _ignoring(function: Callable[[], object]) -> None:
    with contextlib.suppress(ShardqError):
        function()


class SyncBaseClient(BaseClient):
    """The part of `Client` that is not like `AsyncClient`."""

    timer: ThreadTimer

    def __init__(self, target: Target, **settings: Unpack[ClientSettings]) -> None:
        super().__init__(target, **settings)
        self.timer = ThreadTimer(clock=self.clock)
        self._aside = Aside()
        self._posting: Posting | None = None
        self._stands: weakref.WeakSet[Stands] = weakref.WeakSet()
        self._is_ready = False  # whether `prepare` was there; False again when closed
        self.leases = Leases(self.timer, self.clock, self._aside)
        self._driver = Driver(self._target, **self._driver_settings())
        _clients.add(self)

    def close(self) -> None:
        """Close every connection, and stop the embedded server if this client started one. Idempotent.

        It raises nothing.

        >>> client.close()
        """
        self._closed, self._is_ready = True, False
        for stands in [*self._stands]:
            stands.end()  # while there are connections to give back what comes
        self.timer.close(wait=False)
        self._driver.close()
        if self._posting is not None:
            self._posting.close()
        self._stop_server()

    def end_wait(self, thread: int) -> None:
        """End the blocked read of another *thread*, named by its `threading.get_ident()`; it returns what it has.

        A task of `AsyncClient` is cancelled instead.
        """
        with contextlib.suppress(ClosedError):  # the client was closed meanwhile, which ends all waits
            self._driver.recall(whole("thread", thread, 0, 2**64))
        for stands in [*self._stands]:
            stands.recall(thread)

    def _inspect(self, driver: Driver) -> None:
        """Look at the server, unless another thread did so meanwhile."""
        with self._lock:
            if not self._inspected:
                driver.run(self._inspection())

    def _start_posting(self) -> Posting:
        """Return the threads that make the calls of writers. They start on first need."""
        with self._lock:
            self._posting = self._posting or self._driver.posting(self.timer)
            return self._posting

    def _run_in_background(self, op: Op[Any]) -> None:
        """Start *op* in a thread of its own: the server may not answer it. Its failure is ignored."""
        run = partial(self._driver.run, op)
        with contextlib.suppress(RuntimeError):  # the program ends
            threading.Thread(target=_ignoring, args=(run,), name="shardq-aside", daemon=True).start()

    def _forked(self) -> None:
        self._lock = threading.RLock()
        self._aside.reset()
        self._posting = None
        self.leases.forked()
        self._driver.forked()
        for state in list(self._all_states):
            state.forked(self.name)
        for router in self._routers.all():
            router.forked()
