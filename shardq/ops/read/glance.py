"""glance: the messages that a read of a queue would find, without a lease.

A reader of several queues in turn chooses by it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op

NO_SCORE: Final = -1
"""Stands for the score of the first that waits for a turn where nobody waits, or nobody has looked."""


class Glance(msgspec.Struct, frozen=True):
    """The sight of a queue.

    `quiet` is how many messages lie in its streams, for tenants with nobody ahead of them. `turns` is how many shard
    keys wait for a turn, each as often as its weight says. `has_come` says whether time has brought something that the
    next read takes back: leases that ended, or messages that came due. For a queue with a legacy stream it is always
    so: only a read looks into that. `first` is the score of the first that waits for a turn, NO_SCORE if nobody does,
    and `virtual` the virtual time in 0.1 ms. Where there is no such queue, it is not there, and has nothing.

    >>> Glance(quiet=0, turns=0, has_come=True).may_have_some
    True
    """

    quiet: int = 0
    turns: int = 0
    has_come: bool = False
    first: int = NO_SCORE
    virtual: int = 0
    is_there: bool = True

    @property
    def may_have_some(self) -> bool:
        """Whether a read may find a message. Limits and pauses may yet let none through."""
        return self.has_come or self.quiet + self.turns > 0


def glance(state: QueueState, until: float) -> Op[Glance]:
    """Return what a read would find in the queue; nothing where there is no such queue.

    It changes nothing and creates nothing. The tries end at local time *until*: BackendTimeout.
    """
    reply = yield from retry_until(always(Call.on(state.keys, "glance")), until, state.clock)
    if not reply:
        return Glance(is_there=False)
    quiet, turns, has_come, first, virtual = map(int, reply)
    return Glance(quiet, turns, has_come == 1, first, virtual)
