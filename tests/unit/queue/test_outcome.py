"""What is told of an effect: its outcome, and what it makes known of items meanwhile."""

from __future__ import annotations

from typing import Any

from shardq.ops.queue.outcome import told_as
from shardq.ops.queue.steps import Known, Op, Sleep
from shardq.testing import ManualClock
from tests.unit.driving import drive


def known(*items: int) -> Op[str]:
    """An effect that makes some items known, one after the other."""
    for each in items:
        yield Known([(each, str(each))])
    yield from (Sleep(0.0) for _ in items)
    return "done"


def doubled(item: Any, result: Any) -> tuple[Any, Any]:
    return 2 * item, result


def test_what_an_effect_makes_known_is_told_as_its_caller_says() -> None:
    driven = drive(told_as(known(1, 2), doubled), lambda step: None, ManualClock())
    assert driven.result == "done"
    assert [step.results for step in driven.steps if isinstance(step, Known)] == [[(2, "1")], [(4, "2")]]


def test_an_effect_that_takes_no_step_is_one() -> None:
    assert drive(told_as(known(), doubled), lambda step: None, ManualClock()).result == "done"
