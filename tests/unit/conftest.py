"""What tests of operations driven by hand begin with: a clock that stands still, and a queue that is open."""

from __future__ import annotations

import pytest

from shardq.ops.queue.state import QueueState
from shardq.testing import ManualClock
from tests.unit.driving import state_of


@pytest.fixture
def clock() -> ManualClock:
    """It stands until the test moves it."""
    return ManualClock()


@pytest.fixture
def state(clock: ManualClock) -> QueueState:
    """An open queue of four streams."""
    return state_of(clock)
