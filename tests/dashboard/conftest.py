"""What all tests of the dashboard have: a browser, and a clock that the test moves."""

from __future__ import annotations

import pytest

from shardq.testing import ManualClock
from tests.dashboard.browser import chromium, open_look

__all__ = ["chromium", "open_look"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()
