"""In which form calls go to each node: as functions, or by hash where the node does not let the library be loaded.

A full Redis refuses to load a library, but it runs scripts that free memory. So a client that comes when Redis is full
must send scripts to it, and to no other node.
"""

from __future__ import annotations

from typing import Final

from shardq.clock import Clock
from shardq.drivers.target import Address
from shardq.ops.queue.steps import Refused
from shardq.protocol.script import FUNCTION, HASH, Form

PASSING_CODES: Final = frozenset({"OOM", "MISCONF", "NOREPLICAS"})
"""Codes of refusals that pass when the node has room, or may write, again."""

SOON_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 600.0
"""Seconds after which the library is tried again: after a refusal that passes, or one that somebody must mend."""


class Forms:
    """The form for each node, as this client has learnt it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refusals: dict[Address | None, tuple[float, Refused]] = {}

    def of(self, address: Address | None) -> Form:
        """Return the form in which a call goes to the node at *address*, or to the only node if that is None."""
        if not self._refusals:
            return FUNCTION  # the common case
        return FUNCTION if self.refusal(address) is None else HASH

    def refusal(self, address: Address | None) -> Refused | None:
        """Return why calls go to that node by hash; None if they do not."""
        until, refused = self._refusals.get(address, (0.0, None))
        if refused is not None and self._clock.monotonic() >= until:
            self._refusals.pop(address, None)
            return None
        return refused

    def refused(self, address: Address | None, refused: Refused) -> None:
        """Note that the node did not let the library be loaded or its functions be called."""
        seconds = SOON_SECONDS if refused.code in PASSING_CODES else RETRY_SECONDS
        self._refusals[address] = self._clock.monotonic() + seconds, refused
