"""A verb as a coalescer must know it: the call that it makes for several callers, and what its reply means."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any, Generic, TypeVar

from shardq.ops.queue.steps import Op

I = TypeVar("I")  # noqa: E741 (an item: what a caller wants)
R = TypeVar("R")


class Verb(ABC, Generic[I, R]):
    """The form of the calls of one verb of one queue.

    The call of the common case is *tried* first. It is an object with the attributes `call` and `sendable`, the latter
    for a driver to send; anything else in it is the verb's own.
    """

    @abstractmethod
    def bounds(self) -> tuple[int, int]:
        """Return how many items one call may have, and how much they may weigh together."""

    @abstractmethod
    def weight(self, item: I) -> int:
        """Return how much an item weighs."""

    @abstractmethod
    def kind(self, item: I) -> Hashable:
        """Return what the items of one call have in common."""

    @abstractmethod
    def attempt(self, items: Sequence[I], until: float) -> Any:
        """Return the call of the common case; None if there is none, such as before the queue is open."""

    @abstractmethod
    def results(self, tried: Any, reply: Any) -> Sequence[R | Exception] | None:
        """Return the results that a *reply* of the common case has; None if the operation must look at the reply."""

    @abstractmethod
    def drop(self, tried: Any) -> None:
        """Let go of a call that was given up."""

    @abstractmethod
    def op(self, items: Sequence[I], until: float, tried: Any) -> Op[Sequence[R | Exception]]:
        """Return the operation for everything that is not common. Its first step is the call of *tried*, if given."""

    def give_out(
        self, tried: Any, results: Sequence[R | Exception], present: Sequence[bool]
    ) -> Sequence[R | Exception]:
        """Return the results for the callers of a shared call; some have left and are not *present*."""
        return results

    def unclaimed(self, tried: Any) -> Op[None] | None:
        """Return what gives back what a shared call was granted and nobody got; None if that is nothing."""
        return None

    def doubt(self, item: I) -> None:
        """Note that the caller of *item* learned that it is unknown whether its call happened."""
