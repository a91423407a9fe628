"""What the verbs say about calls that several callers share: the common case, and what follows from a refusal."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shardq.errors import BackendError, OutcomeUnknown, QueueFull
from shardq.model import Received, Written
from shardq.model.failed import FailedTry
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Refused, Step, Unanswered
from shardq.ops.settle.command import LoneAck, ack_call
from shardq.ops.settle.settle import Settled
from shardq.ops.settle.sharing import Settle, settles_of
from shardq.ops.write.command import LoneWrite, call_of, positions_of
from shardq.ops.write.outgoing import Outgoing
from shardq.ops.write.write import TriedWrite, writes_of
from shardq.protocol.script import FUNCTION, HASH, Form
from shardq.protocol.scripts import load
from shardq.testing import ManualClock
from tests.unit.driving import drive, state_of
from tests.unit.wire import is_repeated, write_head

UNTIL = 1e9
FORMS: tuple[Form, ...] = (FUNCTION, HASH)


OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"headers": b"x"},
    {"delay": 1},
    {"deadline": 1},
    {"dedup_key": "ä"},
    {"headers": b"x", "delay": 1, "deadline": 2, "dedup_key": "x", "unique_key": "y", "on_conflict": "replace"},
)


def lone_write(state: QueueState, message: Outgoing) -> LoneWrite:
    """The write of one message, as the verb makes it."""
    tried = writes_of(state).verb.attempt([message], UNTIL)
    assert isinstance(tried, LoneWrite)
    return tried


def received(number: int) -> Received:
    token = f"{number % 3}:1700000000000-{number}:1:holder:-:t"
    return Received(f"1700000000000-{number}-0", "t", 1, UNTIL, b"", "b", {}, "", 0, 0.0, token)


@pytest.mark.parametrize(
    "config",
    [
        {"streams": 64, "streams_per_shard": 6},
        {"streams": 5, "streams_per_shard": 5},
        {"streams": 1},
        {"streams": 2000, "max_len": 7},
        {"streams": 4096, "streams_per_shard": 255},
    ],
)
def test_a_message_alone_has_the_bytes_of_its_call(clock: ManualClock, config: dict[str, int]) -> None:
    state = state_of(clock, **config)
    for key, options in itertools.product(("a", "b", b"\xff", "a", "ä" * 500), OPTIONS):
        message = Outgoing(key, "b", b"body", **options)
        lone = lone_write(state, message)
        numbers, (own,) = positions_of(state.view, [key])
        columns: list[Any] = [[own], [key], ["b"], [b"body"]]
        if options:
            columns += [[message.headers], [message.options]]
        head = write_head(lone.call)
        assert head.lane == lone.sequence.name
        assert lone.call == call_of(state, state.view, head.lane, head.sequence, numbers, columns)
        assert lone.call is lone.call
        assert (lone.key, lone.until) == (lone.call.key, lone.call.until)
        assert [lone.request(form) for form in FORMS] == [lone.call.request(form) for form in FORMS]


def test_a_message_alone_has_the_bytes_of_its_call_in_both_forms(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = replace(load("write"), function="shardq_x_write")
    monkeypatch.setattr("shardq.ops.queue.steps.load", lambda _: function)
    lone = lone_write(state_of(clock), Outgoing("a", "b", b"body"))
    requests = [lone.request(form) for form in FORMS]
    assert requests == [lone.call.request(form) for form in FORMS]
    assert [request.split(b"\r\n")[2:5:2] for request in requests] == [
        [b"FCALL", b"shardq_x_write"],
        [b"EVALSHA", function.sha.encode()],
    ]


@pytest.mark.parametrize("options", [{}, {"headers": b"x"}])
def test_a_write_is_not_repeated_after_a_sleep_of_the_machine_during_its_first_try(
    clock: ManualClock, options: dict[str, Any]
) -> None:
    """Redis may have forgotten that try, which the driver made before the operation began."""
    writes = writes_of(state_of(clock)).verb
    messages = [Outgoing("t", "b", b"", **options)]
    tried = writes.attempt(messages, UNTIL)
    assert tried is not None
    clock.advance(3601)
    op = writes.op(messages, UNTIL, tried)
    assert next(op) is tried.call
    with pytest.raises(StopIteration) as ended:
        op.throw(Unanswered("reset", sent=True))
    assert [type(result) for result in ended.value.value] == [OutcomeUnknown]


@pytest.mark.parametrize("place", ["0", "3", "l", "d"])
@pytest.mark.parametrize("config", [{}, {"legacy_stream": "old", "legacy_group": "g"}, {"parents": 1}])
def test_an_ack_alone_has_the_bytes_of_its_call(clock: ManualClock, place: str, config: dict[str, Any]) -> None:
    state = state_of(clock, **config)
    for shard_key, cost in (("t", ""), ("ä", "12.5"), (b"\xff".decode(errors="surrogateescape"), "=3.0")):
        delivery = msgspec.structs.replace(received(7), token=f"{place}:1-7:1:holder:-:{shard_key}", cost=cost)
        tried = settles_of(state, "ack").verb.attempt([Settle(delivery)], UNTIL)
        assert isinstance(tried, LoneAck)
        assert tried.call == ack_call(state, [(place, "1-7", delivery)])
        assert tried.call is tried.call
        assert (tried.key, tried.until, tried.tokens) == (tried.call.key, tried.call.until, (delivery.token,))
        assert [tried.request(form) for form in FORMS] == [tried.call.request(form) for form in FORMS]


def test_a_message_that_may_go_to_very_many_streams_has_a_call_of_the_general_form(clock: ManualClock) -> None:
    state = state_of(clock, streams=4096, streams_per_shard=256)
    assert isinstance(writes_of(state).verb.attempt([Outgoing("t", "b", b"")], UNTIL), TriedWrite)


def test_messages_that_a_bound_refuses_leave_the_others_of_a_call(state: QueueState, clock: ManualClock) -> None:
    messages = [Outgoing("t", "b", bytes([n])) for n in range(3)]
    verb = writes_of(state).verb
    tried = verb.attempt(messages, UNTIL)
    assert tried is not None
    sizes = []

    def answer(step: Step) -> Any:
        assert isinstance(step, Call)
        sizes.append(write_head(step).messages)
        return [b"FULL", b"max_len", b"2:5", 6, 5, b""] if step is tried.call else [b"OK", b"1700000000000|5|0,0"]

    results = drive(verb.op(messages, UNTIL, tried), answer, clock).result
    assert results is not None
    assert sizes == [3, 2]
    assert [type(result) for result in results] == [Written, QueueFull, Written]


@pytest.mark.parametrize(("code", "calls"), [("WRONGTYPE", 4), ("OOM", 1), ("NOPERM", 1), ("NOAUTH", 1)])
def test_a_refusal_that_may_be_of_one_message_is_not_everybodys(
    state: QueueState, clock: ManualClock, code: str, calls: int
) -> None:
    for coalescer, items in (
        (writes_of(state), [Outgoing("t", "b", bytes([n])) for n in range(3)]),
        (settles_of(state, "ack"), [Settle(received(n)) for n in range(3)]),
    ):
        verb: Any = coalescer.verb
        made = 0

        def answer(step: Step) -> Any:
            nonlocal made
            made += 1
            return Refused(code, "")

        try:
            results = drive(verb.op(items, UNTIL, verb.attempt(items, UNTIL)), answer, clock).result or []
        except BackendError as error:
            results = [error] * 3
        assert made == calls
        assert [isinstance(result, BackendError) for result in results] == [True] * 3


@pytest.mark.parametrize("verb", ["ack", "nack", "reject", "extend"])
def test_letters_go_to_their_callers_and_a_delivery_that_comes_twice_counts_once(
    state: QueueState, clock: ManualClock, verb: str
) -> None:
    """As if the second caller had come later: a lease that was extended is still there, one that was ended is not."""
    items = [Settle(received(n), 1.0, FailedTry("why")) for n in (4, 2, 0, 4, 1)]
    letters = {items[0].delivery.token: "o", items[1].delivery.token: "l", items[2].delivery.token: "c"}
    again = Settled.OK if verb == "extend" else Settled.LOST
    expected = [Settled.OK, Settled.LOST, Settled.CANCELLED, again, Settled.OK]
    coalescer = settles_of(state, verb)

    def reply(call: Call) -> list[Any]:
        tokens = [arg for arg in call.args if isinstance(arg, str) and arg.endswith(":holder:-:t")]
        assert len(tokens) == 4
        return [1, "".join(letters.get(token, "o") for token in tokens).encode()]

    tried = coalescer.verb.attempt(items, UNTIL)
    assert coalescer.verb.results(tried, reply(tried.call)) == expected
    lost: list[Any] = [Unanswered("", sent=True)]
    driven = drive(coalescer.verb.op(items, UNTIL, tried), lambda step: lost.pop() if lost else reply(step), clock)  # type: ignore[arg-type]
    assert driven.result == expected
    first, second = [call for call in driven.steps if isinstance(call, Call)]
    if verb == "ack":
        assert [is_repeated(first), is_repeated(second)] == [False, True]
    elif verb != "extend":  # by its number it is recognized
        assert first.args[1] == second.args[1]


def test_an_ack_says_of_each_delivery_whether_an_earlier_try_may_have_acked_it(state: QueueState) -> None:
    """So nobody's lost lease is told as acked because of another caller of the same call."""
    deliveries = [received(n) for n in range(3)]
    state.unsure.add(deliveries[1].token)
    part = [("0", "1-7", delivery) for delivery in deliveries]
    assert ack_call(state, part).args[1] == f"- {deliveries[1].message_id} -"
    assert ack_call(state, part[:1]).args[1] == "0"
    assert ack_call(state, part, repeated=True).args[1] == " ".join(each.message_id for each in deliveries)


def test_leases_that_are_extended_together_end_together(state: QueueState) -> None:
    verb = settles_of(state, "extend").verb
    assert verb.kind(Settle(received(1), 5.0)) != verb.kind(Settle(received(2), 6.0))
    verb = settles_of(state, "nack").verb
    assert verb.kind(Settle(received(1), 5.0)) == verb.kind(Settle(received(2), 6.0))
