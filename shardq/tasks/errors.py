"""The errors that a task's function may raise besides those of every handler."""

from __future__ import annotations

from collections.abc import Mapping

from shardq.arguments import mapping


class PartlyFailed(Exception):
    """Raise it in a task of many: *errors* has what some of the batch failed with, by their place from 0.

    The others are done. ConfigError if *errors* is no mapping.

    >>> tasks = Tasks("search")
    >>> @tasks.batch()
    ... def index(documents: list[str]) -> None:
    ...     raise PartlyFailed({1: ValueError("no title")})
    """

    def __init__(self, errors: Mapping[int, BaseException]) -> None:
        self.errors: dict[int, BaseException] = dict(mapping("errors", errors, "places to errors"))
        super().__init__(f"{len(self.errors)} of the batch failed")
