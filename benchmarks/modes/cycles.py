"""What is done again and again in a mode, and which of it is measured."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Final, TypeVar

from benchmarks.modes.probes import INSTRUCTIONS, Probe

if TYPE_CHECKING:
    from benchmarks.modes.caller import Caller

VERBS: Final = ("write", "read", "ack")
WITH_ACK: Final = "read(ack=)"
KEPT: Final = "kept"
One = TypeVar("One")


class Meter:
    """Keeps what a probe says was spent in each verb, cycle by cycle."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._spent: defaultdict[str, list[Counter[str]]] = defaultdict(list)

    def __call__(self, verb: str, messages: int, call: Callable[..., One], *given: Any) -> One:
        """Call, and note what was spent for each of so many messages."""
        before = self._probe()
        found = call(*given)
        after = self._probe()
        each = {what: (now - before.get(what, 0)) / messages for what, now in after.items()}
        self._spent[verb].append(Counter(each))  # type: ignore[arg-type] # a Counter of floats
        return found

    def each(self) -> dict[str, dict[str, float]]:
        """By verb, what was spent for each message."""
        return {verb: _of_all(cycles) for verb, cycles in self._spent.items()}


def _of_all(cycles: Sequence[Counter[str]]) -> dict[str, float]:
    """The mean of all cycles; of instructions the median.

    A server spends about a million of them in each second of the wall's time, whatever it is asked, and under
    callgrind that falls on few cycles.
    """
    names = dict.fromkeys(what for cycle in cycles for what in cycle)
    found = {what: (median if what == INSTRUCTIONS else fmean)([each[what] for each in cycles]) for what in names}
    return {what: spent for what, spent in found.items() if spent}


Cycle = Callable[["Caller", Meter], None]


def whole(caller: Caller, meter: Meter) -> None:
    """Messages are written, read and acked."""
    messages = caller.messages()
    meter("write", len(messages), caller.write, messages)
    caller.mode.between(caller)
    found = meter("read", len(messages), caller.read, len(messages))
    meter("ack", len(messages), caller.ack, found)


def with_ack(caller: Caller, meter: Meter) -> None:
    """Messages are read by calls that bring the acks of those read before."""
    messages = caller.messages()
    caller.write(messages)
    caller.mode.between(caller)
    meter(WITH_ACK, len(messages), caller.read_with_ack, len(messages))


def empty(caller: Caller, meter: Meter) -> None:
    """A read finds nothing."""
    meter("read", 1, caller.read_nothing)


def kept(caller: Caller, meter: Meter) -> None:
    """Messages are written and stay, waiting, delayed or in flight."""
    messages = caller.messages()

    def keep() -> None:
        caller.write(messages)
        caller.mode.between(caller)

    meter(KEPT, len(messages), keep)
