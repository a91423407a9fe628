"""The guard around all telemetry: a failure in a program's SDK fails no call and ends no worker."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

log = logging.getLogger("shardq")
_has_failed = False
_P = ParamSpec("_P")
_R = TypeVar("_R")


def guarded(otherwise: Callable[[], _R]) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Return a decorator of a function that is to raise nothing: if it fails, it returns what *otherwise* does.

    >>> @guarded(int)
    ... def number() -> int:
    ...     return 7
    >>> number()
    7
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            try:
                return function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 (the program's SDK)
                note_failure(error)
                return otherwise()

        return call

    return decorate


def nothing() -> Any:
    """Return None, where a guarded function has no result."""


def note_failure(error: Exception) -> None:
    """Log once that the program's traces fail. The call continues."""
    global _has_failed
    if not _has_failed:
        _has_failed = True
        log.error("the program's traces fail: spans are missing", exc_info=error)
