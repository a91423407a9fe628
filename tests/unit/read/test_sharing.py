"""Reads that several callers share: who gets which rows, and what becomes of those that nobody got."""

from __future__ import annotations

from typing import Any

import pytest

from shardq.errors import OutcomeUnknown
from shardq.model import Received
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Unanswered
from shardq.ops.read import sharing as reading
from shardq.ops.read.command import ReadReply
from shardq.ops.read.sharing import Want, reads_of
from shardq.ops.read.waiting import Outstanding, ReadRequest
from shardq.ops.sharing.caller import Caller
from shardq.ops.sharing.shared_call import SharedCall
from shardq.testing import ManualClock
from tests.unit.driving import drive
from tests.unit.wire import name_of, read_head

UNTIL = 1e9


def row(number: int) -> Received:
    token = f"0:1700000000000-{number}:1:holder:-:t"
    return Received(f"1700000000000-{number}-0", "t", 1, UNTIL, b"", "b", {}, "", 0, 0.0, token)


def callers_of(state: QueueState, *wants: tuple[int, float]) -> tuple[SharedCall[Any, Any], list[Caller[Any, Any]]]:
    """A shared call of readers that want so many messages and wait for so long, which has been sent."""
    coalescer = reads_of(state)
    callers: list[Caller[Any, Any]] = [
        Caller(Want(ReadRequest(count, 30.0, None), block, Outstanding()), UNTIL, lambda: None)
        for count, block in wants
    ]
    for caller in callers:
        coalescer.add(caller, 1)
    shared = coalescer.take()
    assert shared is not None
    call = shared.step()
    assert isinstance(call, Call)
    assert read_head(call).most == sum(count for count, _ in wants)
    assert call.on_send is not None
    call.on_send()
    return shared, callers


def answered(monkeypatch: pytest.MonkeyPatch, shared: SharedCall[Any, Any], rows: list[Received]) -> None:
    monkeypatch.setattr(reading, "read_reply", lambda *_: ReadReply(rows, 500))
    shared.answer([b"OK", b"1", b"1"])
    assert shared.ended


def given_back(shared: SharedCall[Any, Any], clock: ManualClock) -> list[Any]:
    """The calls that give back what nobody got: the verb and its last arguments, without what every `settle` has."""
    if shared.unclaimed is None:
        return []
    steps = drive(shared.unclaimed, lambda _: [b"", []], clock).steps
    return [
        (name_of(step), *(step.args[5:] if name_of(step) == "give_back" else step.args[:1]))
        for step in steps
        if isinstance(step, Call)
    ]


def test_rows_are_given_out_in_the_order_of_the_callers(
    state: QueueState, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, callers = callers_of(state, (1, 0.0), (3, 0.0), (1, 1.0), (1, 0.0))
    answered(monkeypatch, shared, [row(n) for n in range(4)])
    results: list[Any] = [caller.result for caller in callers]
    assert [[each.message_id for each in result.rows] for result in results] == [
        [row(0).message_id], [row(n).message_id for n in (1, 2, 3)], [], [],
    ]  # fmt: skip
    assert [result.more for result in results] == [False, False, True, True]  # who got none looks again
    assert [caller.item.outstanding.rows for caller in callers] == [result.rows for result in results]
    assert given_back(shared, clock) == []


def test_what_one_who_has_left_would_have_got_goes_to_the_others(
    state: QueueState, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, callers = callers_of(state, (1, 0.0), (1, 0.0), (1, 0.0))
    assert reads_of(state).give_up(callers[0])
    assert isinstance(callers[0].result, OutcomeUnknown)
    answered(monkeypatch, shared, [row(0), row(1), row(2)])
    results: list[Any] = [caller.result for caller in callers[1:]]
    assert [result.rows for result in results] == [[row(0)], [row(1)]]
    assert given_back(shared, clock) == [("give_back", row(2).token)]


def test_what_the_only_caller_has_not_waited_for_is_given_back(
    state: QueueState, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, (caller,) = callers_of(state, (2, 0.0))
    assert reads_of(state).give_up(caller)
    answered(monkeypatch, shared, [row(0), row(1)])
    assert given_back(shared, clock) == [("give_back", row(0).token, row(1).token)]


def test_what_a_lost_reply_had_leased_is_given_back_when_all_have_left(state: QueueState, clock: ManualClock) -> None:
    shared, callers = callers_of(state, (1, 0.0), (1, 0.0))
    call = shared.step()
    assert isinstance(call, Call)
    holder = read_head(call).holder
    shared.answer(Unanswered("lost", sent=True))
    for caller in callers:
        assert reads_of(state).give_up(caller)
        assert isinstance(caller.result, OutcomeUnknown)
    assert shared.step() is None
    assert given_back(shared, clock) == [("lost", holder)]
