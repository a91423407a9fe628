"""What must not happen: its kinds, and where to look when one did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """A promise that was not kept. The first ones are names of checks in `tests/soak/history.py`."""

    LOST = "lost"
    UNEXPECTED = "unexpected"
    DOUBLED = "doubled"
    ACKED_TWICE = "acked twice"
    CAME_BACK = "delivered after its ack"
    TWO_LEASES = "two leases at one time"
    LATE_ACK = "late ack accepted"
    OUT_OF_ORDER = "out of order"
    FORBIDDEN_LOSS = "lost where its level forbids it"
    LATE = "late beyond the bound"
    TOLD_WRONGLY = "told wrongly"
    FIGURES_WRONG = "figures wrong"
    MEMORY_GREW = "memory grew"
    KEYS_LEFT = "keys left behind"
    DESCRIPTORS_LEFT = "descriptors or threads left behind"
    NOT_RECOVERED = "fault without recovery"
    DAMAGED = "history damaged"


LOOK: Final[Mapping[Kind, str]] = {
    Kind.LOST: "the queue's journal for this id, and the faults between its write and the end",
    Kind.UNEXPECTED: "which process logged the delivery, and whether a write of it was logged at all",
    Kind.DOUBLED: "the producer's calls at its write: one was tried again (lua/producers.lua)",
    Kind.ACKED_TWICE: "both deliveries' tokens (lua/settling.lua), and faults of the queue's server between them",
    Kind.CAME_BACK: "faults of the queue's server after the ack, and where the message lay (lua/leases.lua)",
    Kind.TWO_LEASES: "both deliveries, and the server's clock (lua/clock.lua)",
    Kind.LATE_ACK: "the ack's delivery, and the server's clock (lua/clock.lua)",
    Kind.OUT_OF_ORDER: "the two deliveries and their shard keys (lua/streams.lua, lua/turns.lua)",
    Kind.FORBIDDEN_LOSS: "docs/durability.md, and whether the call waited for replicas (shardq/drivers/wire.py)",
    Kind.LATE: "who read the queue then, what blocked it, and its deadlines (lua/due.lua, shardq/ops/read/pump.py)",
    Kind.TOLD_WRONGLY: "the caller's log around the call, and shardq/ops/queue/retry.py",
    Kind.FIGURES_WRONG: "the queue's journal around that time (lua/look.lua, lua/survey.lua)",
    Kind.MEMORY_GREW: "the plot of the process's memory: a slope is a leak, a step is a fault's",
    Kind.KEYS_LEFT: "the names of the keys that are new at the end",
    Kind.DESCRIPTORS_LEFT: "the process's open files and its threads after each fault",
    Kind.NOT_RECOVERED: "the logs of what should have recovered",
    Kind.DAMAGED: "how the run ended, and what its processes wrote to their errors",
}


@dataclass(frozen=True)
class Violation:
    """One promise that was not kept, in a sentence with ids and times."""

    kind: Kind
    text: str

    @property
    def look(self) -> str:
        """What to look at."""
        return LOOK[self.kind]
