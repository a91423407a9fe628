"""Queues that are gone when a run comes to them: the others are read anyway. The run fails if all are gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from shardq.errors import QueueMissing

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunQueues:
    """The queues of a run by their `names`. `missing` says why some are gone."""

    names: Sequence[str]
    missing: dict[str, str] = field(default_factory=dict)

    def ask(self, name: str, asked: Callable[[], T]) -> T | None:
        """Return what *asked* does; None if it finds that there is no such queue."""
        try:
            found = asked()
        except QueueMissing as error:
            self.missing[name] = str(error)
            return None
        self.missing.pop(name, None)
        return found

    def check(self) -> None:
        """QueueMissing if none of them is there."""
        if self.missing.keys() == {*self.names}:
            raise QueueMissing("; ".join(self.missing.values()))
