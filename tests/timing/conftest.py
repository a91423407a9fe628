"""Threads that do not let each other finish."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture
def restless() -> Iterator[None]:
    """Let threads take turns after a few bytecodes instead of after 5 ms."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)
