"""What a call ended with, by the answers to its commands; and what an armed read sends."""

from __future__ import annotations

import math
from typing import Any

import pytest

from shardq.drivers.wire import armed, outcome_of, told
from shardq.ops.queue.steps import Armed, Call, Refused, Unanswered, Underreplicated
from shardq.protocol.script import FUNCTION
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


@pytest.mark.parametrize("call", [PLAIN, None])
@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("number", [7, None])
def test_an_armed_read_asks_only_for_what_is_not_known(call: Call | None, timed: bool, number: int | None) -> None:
    step = Armed("key", 1, 1000, call, math.inf, None, None, timed)
    commands = [str(command[0]) for command in armed(step, FUNCTION, number)]
    wanted = ["TIME"] * timed + ["XREADGROUP"] + ["FCALL_RO"] * (call is not None)
    assert commands == ["CLIENT"] * (number is None) + wanted
    answers: list[Any] = [*commands]
    assert told(step, answers) == (wanted if timed else [None, *wanted])
