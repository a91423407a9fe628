"""Waiting for a condition, with a bound: the only way in which a test may wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from shardq import BackendError

T = TypeVar("T")


def eventually(condition: Callable[[], T], timeout: float = 30.0, *, every: float = 0.005, what: str = "") -> T:
    """Call `condition` until it returns something true, and return that; fail after `timeout` seconds.

    A condition that asserts is asked again too, and its last complaint is the failure's cause.
    """
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while True:
        complaint: AssertionError | None = None
        result: T | None = None
        try:
            result = condition()
            if result:
                return result
        except AssertionError as error:
            complaint = error
        if time.monotonic() >= deadline:
            raise AssertionError(
                f"{what or condition} did not hold within {timeout} s, last: {result!r}"
            ) from complaint
        pause.wait(every)


def answered(call: Callable[[], T], timeout: float = 30.0) -> T:
    """What *call* returns once Redis answers in its time: for clients with less patience than a busy machine needs."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return call()
        except BackendError:
            if time.monotonic() >= deadline:
                raise
