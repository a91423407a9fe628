"""Tell the user's `on_dead` of dead letters, apart from the settling: the messages that wait for that have leases, too.

Calls are made one after the other. At most UNTOLD wait; a caller that brings more waits for room.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from functools import partial
from typing import Final, TypeAlias, cast

from shardq.client import Delivery
from shardq.timing.aside import Aside
from shardq.worker import guard
from shardq.worker.call import is_async
from shardq.worker.contexts import Fresh
from shardq.worker.crossing import Crossing
from shardq.worker.plan import OnDead
from shardq.worker.trouble import RETURN_TIMEOUT

log = logging.getLogger("shardq")
MAX_UNTOLD: Final = 1000
Dead: TypeAlias = Sequence[tuple[Delivery, str]]
"""Deliveries whose messages are dead letters now, each with the reason."""


class Teller:
    """Calls *on_dead* in a thread, which runs while there is something to tell; a coroutine function in the loop."""

    def __init__(self, on_dead: OnDead | None, fresh: Fresh) -> None:
        self._on_dead, self._aside, self._fresh = on_dead, Aside(), fresh
        self.is_async = is_async(on_dead)
        self._room = threading.Semaphore(MAX_UNTOLD)

    def tell(self, dead: Dead, crossing: Crossing | None) -> None:
        """Have the function called for each of *dead*."""
        for delivery, reason in dead if self._on_dead else ():
            self._room.acquire()
            self._aside(partial(self._call, delivery, reason, crossing))

    def _call(self, delivery: Delivery, reason: str, crossing: Crossing | None) -> None:
        on_dead, context = cast("OnDead", self._on_dead), self._fresh()
        try:
            if crossing is not None and self.is_async:
                args = guard.tell_async, "on_dead", on_dead, crossing.face(delivery), reason
                context.run(crossing.in_loop, set(), *args)
            else:
                context.run(guard.tell, "on_dead", on_dead, delivery, reason)
        finally:
            self._room.release()

    def close(self) -> None:
        """Wait until all reports are made, for RETURN_TIMEOUT at most."""
        if not self._aside.wait(RETURN_TIMEOUT):
            log.warning("the worker ends before on_dead ran for all dead letters")
