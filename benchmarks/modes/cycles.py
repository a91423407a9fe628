"""What is done again and again in a mode, and which of it is measured."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from benchmarks.modes.probes import Probe

if TYPE_CHECKING:
    from benchmarks.modes.caller import Caller

VERBS: Final = ("write", "read", "ack")
WITH_ACK: Final = "read(ack=)"
KEPT: Final = "kept"
One = TypeVar("One")


class Meter:
    """Adds up what a probe says was spent in each verb."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._spent: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._messages: Counter[str] = Counter()

    def __call__(self, verb: str, messages: int, call: Callable[..., One], *given: Any) -> One:
        """Call, and note what was spent for so many messages."""
        before = self._probe()
        found = call(*given)
        after = self._probe()
        self._messages[verb] += messages
        for what, now in after.items():
            self._spent[verb][what] += now - before.get(what, 0)  # type: ignore[assignment] # a Counter of floats
        return found

    def each(self) -> dict[str, dict[str, float]]:
        """By verb, what was spent for each message."""
        return {
            verb: {what: spent / self._messages[verb] for what, spent in found.items() if spent}
            for verb, found in self._spent.items()
        }


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
