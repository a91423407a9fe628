"""The fast path of a read: when there is one, what it sends, and what it leaves to the operation.

`test_acks` runs with looks and without them; so this is only about what the operation does not show.
"""

from __future__ import annotations

from typing import Any

import pytest

from shardq.model import Received
from shardq.ops.queue.server_time import safe_deadline
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Batch, Call, Refused, Unanswered
from shardq.ops.read.acks import Acks
from shardq.ops.read.command import MAX_SHARED_READ
from shardq.ops.read.look import Look, fast_read
from shardq.ops.read.read import read
from shardq.ops.read.sharing import reads_of
from shardq.ops.read.waiting import MAX_PER_CALL, Outstanding
from shardq.ops.settle.command import MAX_ACKS_A_CALL
from shardq.testing import ManualClock
from tests.unit.driving import state_of
from tests.unit.wire import NOW, is_repeated, read_head, read_reply

ROW = [b"1700000000000-7", [b"k", b"t", b"b", b"x"]]
ACKED = [NOW, b"o"]
LOST = Unanswered("reset", sent=True)


def deliveries(count: int) -> list[Received]:
    return [
        Received(f"1-{n}-0", "t", 1, 30.0, b"x", "", {}, "", 0, 0.0, f"0:1-{n}:1:holder::t")
        for n in range(1, count + 1)
    ]


def found(*rows: Any, **told: Any) -> list[Any]:
    return read_reply(*rows, hints=b"2,3", **told)


def calls_of(batch: Batch) -> list[Call]:
    return [each.call for each in batch.calls]


def looked(state: QueueState, acks: Acks | None = None, count: int = 1, **wanted: Any) -> Look | None:
    reads_of(state)  # where readers meet: the first read makes it
    wanted = {"block": 0.0, "visibility": None, "prefer": None, "timeout": None, "outstanding": Outstanding()} | wanted
    return fast_read(state, count, acks=acks, **wanted)


def taken(state: QueueState, acks: Acks | None = None, **wanted: Any) -> Look:
    look = looked(state, acks, **wanted)
    assert look is not None
    return look


def test_there_is_none_before_the_queue_is_open_nor_for_more_than_one_call_takes(state: QueueState) -> None:
    assert looked(state, count=MAX_PER_CALL) is not None
    assert looked(state, count=MAX_PER_CALL + 1) is None
    assert looked(state, Acks.of(deliveries(2))) is None
    assert looked(state, Acks.of(deliveries(MAX_ACKS_A_CALL + 1))) is None
    state.forget()
    assert looked(state) is None


def test_there_is_none_while_there_is_upkeep() -> None:
    assert looked(state_of(ManualClock(), ttl=60.0)) is None


def test_it_makes_the_calls_that_the_operation_would_make(state: QueueState) -> None:
    outstanding, acks = Outstanding(), Acks.of(deliveries(1))
    look = taken(state, acks, block=7.0, prefer=3, visibility=9.0, outstanding=outstanding)
    assert isinstance(look.step, Batch)
    operation = read(state, 1, 7.0, 9.0, 3, None, Outstanding(), Acks.of(deliveries(1)))
    step = next(operation)
    operation.close()
    assert isinstance(step, Batch)
    assert look.step.once
    assert look.step.until == step.until
    for own, other in zip(calls_of(look.step), calls_of(step), strict=True):
        assert (own.script, own.keys) == (other.script, other.keys)
    own_ack, own_read = calls_of(look.step)
    ack, other_read = calls_of(step)
    assert own_ack.args == ack.args
    assert own_read.args[1:] == other_read.args[1:]
    assert read_head(own_read).holder == outstanding.holder
    assert read_head(own_read)._replace(holder="") == read_head(other_read)._replace(holder="")


def test_what_it_found_is_noted_as_by_the_operation(state: QueueState) -> None:
    rows = taken(state).rows(found(ROW))
    assert rows is not None
    assert [row.message_id for row in rows] == ["1700000000000-7-2"]
    assert rows[0].deadline == safe_deadline(0.0, state.config.visibility_timeout)
    assert state.hints == ("2", "3")
    assert state.server_time is not None
    assert state.server_time.ms == NOW


@pytest.mark.parametrize(
    "reply",
    [
        found(),
        found(ROW, ROW),
        found(ROW, kind=b"MORE"),
        found(ROW, kind=b"MISS"),
        found(ROW, epoch=b"2"),
        [b"NOQUEUE"],
        Refused("LOADING", ""),
        LOST,
    ],
)
def test_whatever_is_not_common_is_left_to_the_operation_and_nothing_is_noted(state: QueueState, reply: Any) -> None:
    for acks, outcome in ((None, reply), (Acks.of(deliveries(1)), [ACKED, reply])):
        look = taken(state, acks)
        assert look.rows(outcome) is None
        assert look.outcome is outcome
        assert (state.hints, state.server_time, state.epoch) == ((), None, "1")


@pytest.mark.parametrize("acked", [[NOW, b"l"], [NOW, b"c"], Refused("WRONGTYPE", ""), LOST])
def test_the_operation_judges_every_ack_that_was_not_done(state: QueueState, acked: Any) -> None:
    assert taken(state, Acks.of(deliveries(1))).rows([acked, found(ROW)]) is None


def test_the_operation_goes_on_from_the_outcome_and_sends_the_look_no_more(state: QueueState) -> None:
    outstanding = Outstanding()
    look = taken(state, outstanding=outstanding)
    assert look.rows(LOST) is None
    holder = outstanding.holder
    operation = read(state, 1, outstanding=outstanding, made=look)
    step = next(operation)
    assert isinstance(step, Call)
    assert (step.script.name, step.args[0]) == ("lost", holder)  # what the lost reply granted comes back first
    operation.close()


def test_an_interrupted_ack_is_a_repetition_afterwards_and_a_done_one_is_not(state: QueueState) -> None:
    look = taken(state, Acks.of(deliveries(1)))
    look.drop()
    assert state.unsure == {"0:1-1:1:holder::t"}
    again = taken(state, Acks.of(deliveries(1)))
    assert isinstance(again.step, Batch)
    assert is_repeated(again.step.calls[0].call)
    assert again.rows([ACKED, found(ROW)]) is not None
    assert state.unsure == set()


def test_a_read_that_is_interrupted_has_nothing_to_doubt(state: QueueState) -> None:
    taken(state).drop()
    assert state.unsure == set()


def test_a_reader_of_few_makes_no_look_beside_the_call_of_another() -> None:
    """It waits with the others instead, and shares the next call. A read of many, or with an ack, shares none."""
    state = state_of(ManualClock())
    readers = reads_of(state)
    assert taken(state).coalescer is readers
    assert readers.enter()
    assert looked(state) is None
    assert looked(state, count=MAX_SHARED_READ) is None
    assert taken(state, count=MAX_SHARED_READ + 1).coalescer is None
    assert taken(state, Acks.of(deliveries(1))).coalescer is None
    readers.leave()
    assert looked(state) is not None
