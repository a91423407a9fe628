"""The history as the processes of the hour write it: each event says of which queue it is, each call how it ended.

Values carry the name of their queue, since one that is published lies in several.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from shardq import BackendError, ShardqError
from tests.soak.load import Log, Unanswered

T = TypeVar("T")
CLOCKED: Final = "clocked"
"""The queue whose server's clock jumps."""

JUMPED: Final = 1e6
"""Seconds by which a lease there may be longer than it was asked for: no end of it is certain."""

PATIENCE: Final = 20.0
"""Seconds that a caller gives each call: longer than any one fault."""


class Notes(Log):
    """One file of events about one queue."""

    def __init__(self, folder: Path, name: str, queue: str) -> None:
        super().__init__(folder, name)
        self.queue = queue

    def add(self, event: str, **facts: Any) -> None:
        """Append one event."""
        if "value" in facts:
            facts["value"] = self.spelled(facts["value"])
        if "values" in facts:
            facts["values"] = [self.spelled(each) for each in facts["values"]]
        if "ends" in facts and self.queue == CLOCKED:
            facts["ends"] += JUMPED
        super().add(event, **{"queue": self.queue, **facts})

    def spelled(self, value: object) -> str:
        """The value as the history has it."""
        return f"{self.queue}:{value}"

    def ask(self, call: str, do: Callable[[], T], timeout: float = PATIENCE, values: Sequence[str] = ()) -> T:
        """What a call returns, once it is noted how it ended.

        LeaseLost, and what else says for certain what became of a message, is raised; Unanswered in place of what
        leaves that open.
        """
        at, outcome = time.monotonic(), "ok"
        try:
            return do()
        except BackendError as error:
            outcome = type(error).__name__
            raise Unanswered from error
        except ShardqError as error:
            outcome = type(error).__name__
            raise
        finally:
            now = time.monotonic()
            self.add(
                "told", who=self.name, call=call, at=at, answered=now, timeout=timeout, outcome=outcome, values=values
            )
