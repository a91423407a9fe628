"""The thread that extends leases while a Spark job works. It ends with the job, and with the process that has it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from types import TracebackType

from shardq.client import Client
from shardq.errors import ShardqError
from shardq.model import Received
from shardq.ops.queue.state import QueueState
from shardq.ops.settle.settle import Settled, extend

log = logging.getLogger("shardq")


class Keeper:
    """Extends the leases that are *held* every third of their time, as a context manager.

    What was settled meanwhile, by the job or because its lease ended, is left out from then on.
    """

    def __init__(self, client: Client, state: QueueState, held: Sequence[Received], visibility: float) -> None:
        self._client, self._state, self._visibility = client, state, visibility
        self._held = list(held)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shardq-keeper", daemon=True)

    def __enter__(self) -> Keeper:
        """Begin to extend."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End, after the extension that is under way."""
        self.stop()

    def start(self) -> None:
        """Begin to extend."""
        self._thread.start()

    def stop(self) -> None:
        """End, after the extension that is under way."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while self._held and not self._over.wait(self._visibility / 3):
            try:
                results = self._client.run(extend(self._state, self._held, self._visibility))
            except ShardqError as failure:  # the next round may come in time
                log.warning("leases of queue %r were not extended: %s", self._state.keys.name, failure)
                continue
            self._held = [each for each, how in zip(self._held, results, strict=True) if how is Settled.OK]
