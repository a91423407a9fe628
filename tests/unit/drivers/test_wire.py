"""What a call ended with, by the answers to its commands."""

from __future__ import annotations

import pytest

from shardq.drivers.wire import outcome_of
from shardq.ops.queue.steps import Call, Refused, Unanswered, Underreplicated
from shardq.protocol.scripts import load

PLAIN = Call(load("len"), ("key",))
WAITING = Call(load("len"), ("key",), replicas=2)


def test_a_call_that_waits_for_nobody_ended_with_its_reply() -> None:
    refused = Refused("NOPERM", "")
    assert outcome_of(PLAIN, [7]) == 7
    assert outcome_of(PLAIN, [refused]) is refused


def test_enough_replicas_confirm_and_too_few_are_told_with_the_reply() -> None:
    assert outcome_of(WAITING, [7, 2]) == 7
    few = outcome_of(WAITING, [7, 1])
    assert isinstance(few, Underreplicated)
    assert (few.reply, few.confirmed, few.explain(2)) == (
        7,
        1,
        "1 of 2 replicas confirmed in time; a failover now could lose it",
    )


def test_a_refused_call_is_refused_whatever_the_wait_says() -> None:
    refused = Refused("OOM", "")
    assert outcome_of(WAITING, [refused, 2]) is refused
    assert outcome_of(WAITING, [refused, Refused("NOPERM", "")]) is refused


def test_a_refused_wait_leaves_the_reply_unconfirmed() -> None:
    few = outcome_of(WAITING, [7, Refused("NOPERM", "no right")])
    assert isinstance(few, Underreplicated)
    assert (few.reply, few.confirmed) == (7, 0)
    assert "refused to wait for 2 replicas (NOPERM no right)" in few.explain(2)


@pytest.mark.parametrize("code", ["UNBLOCKED", "WAIT", "READONLY"])
def test_a_node_that_is_no_master_any_more_leaves_the_outcome_open(code: str) -> None:
    """The call is tried again: the next master may lack what it wrote."""
    lost = outcome_of(WAITING, [7, Refused(code, "...")])
    assert isinstance(lost, Unanswered)
    assert lost.sent
