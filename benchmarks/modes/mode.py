"""A mode: one way to use a queue, and what it may cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from benchmarks.modes.cycles import Cycle, whole
from benchmarks.modes.tenants import THOUSAND, Tenants

if TYPE_CHECKING:
    from benchmarks.modes.caller import Caller

PLAIN: Final = "plain, 1,000 tenants"
SUM: Final = "sum"
EACH: Final = "each"
COMMANDS: Final = "commands"
Most = Mapping[str, float]
"""How many times its reference's cost a verb may have: by verb.

SUM is write, read and ack together, EACH is each of them, and COMMANDS is how many commands they run.
"""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a mode may cost, of the mode that stands beside it, and of the same mode in the earlier shardq."""

    beside: Most = field(default_factory=dict)
    earlier: Most = field(default_factory=dict)


NO_BOUNDS: Final = Bounds()


def nothing(_: Caller) -> None:
    """Nothing is to be done."""


@dataclass(frozen=True, slots=True)
class Mode:
    """One row.

    Message *n* is that of `tenants`, and is written with the `options` of *n*. The queue has the `settings`; `setup` is
    called once. `waiting` messages are written before. `between` is called after the writes and before the reads,
    and is not measured. Reads get the arguments `reading`. Single calls of one verb come in a `group`: one write, one
    read, one ack, or so many of each.

    A mode with a bound of `memory` keeps its messages, and is no row of costs: a message may take so many bytes.
    `beside` names the mode whose cost is compared; "" if there is none. What is not run in a shape has None for bounds.
    `ending` is how a delivery ends, and counts as its ack: "ack", "result", "nack" or "reject".
    `user` are ACL rules of the user who calls, and `environment` is set for the process that calls. A `bare` mode has a
    stream and redis-py instead of a queue.
    """

    name: str
    tenants: Tenants = THOUSAND
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Callable[[int], Mapping[str, Any]] | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)
    setup: Callable[[Caller], None] = nothing
    between: Callable[[Caller], None] = nothing
    waiting: int = 0
    group: int = 1
    payload: int = 0
    bare: bool = False
    cycle: Cycle = whole
    ending: str = "ack"
    singles: Bounds | None = NO_BOUNDS
    batches: Bounds | None = NO_BOUNDS
    memory: float = 0.0
    beside: str = PLAIN
    user: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    def bounds(self, batch: int) -> Bounds | None:
        """Those of single calls, or of batches; None if it is not run so."""
        return self.singles if batch == 1 else self.batches
