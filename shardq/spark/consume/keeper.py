"""The thread that extends leases while a Spark job works. It ends with the job, and with the process that has it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from shardq.client import Client
from shardq.errors import ShardqError
from shardq.model import Received
from shardq.ops.queue.state import QueueState
from shardq.spark.consume.holding import still_held

log = logging.getLogger("shardq")


class HoldKeeper:
    """Extends the leases that are *held* every third of their time, from now on until it is closed.

    Messages settled meanwhile, by the job or because their leases ended, are left out from then on.
    """

    def __init__(self, client: Client, state: QueueState, held: Sequence[Received], visibility: float) -> None:
        self._client, self._state, self._visibility = client, state, visibility
        self._held = list(held)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shardq-keeper", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End, after the extension that is under way."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while self._held and not self._over.wait(self._visibility / 3):
            try:
                self._held = still_held(self._client, self._state, self._held, self._visibility)
            except ShardqError as failure:  # the next round may come in time
                log.warning("leases of queue %r were not extended: %s", self._state.keys.name, failure)
