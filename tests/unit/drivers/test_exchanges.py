"""Which exchanges a step takes: played without a server, by answers that a test gives."""

from __future__ import annotations

import math
from typing import Any

import pytest

from shardq.clock import SystemClock
from shardq.drivers.exchanges import REDIRECTIONS, Batching, Exchange, Exchanges, Exchanging, Together
from shardq.drivers.failures import Redirected
from shardq.drivers.permits import AllBusy
from shardq.drivers.sending import NO_FUNCTION
from shardq.drivers.sync import drive
from shardq.drivers.topology import Topology
from shardq.ops.queue.steps import Ask, Batch, Call, Refused, Unanswered, Underreplicated
from shardq.protocol.keys import slot
from shardq.protocol.scripts import load
from shardq.testing.clock import ManualClock

A, B = ("a", 1), ("b", 2)
LEN = load("len")
CALL = Call(LEN, ("{q}",))
assert LEN.library is not None
BY_NAME = ("FCALL_RO", LEN.function, 1, "{q}")
BY_HASH = ("EVALSHA_RO", LEN.sha, 1, "{q}")
BY_SOURCE = ("EVAL_RO", LEN.source, 1, "{q}")
LOAD = ("FUNCTION", "LOAD", LEN.library.text)
UNKNOWN = Refused("NOSCRIPT", NO_FUNCTION)
NO_SCRIPT = Refused("NOSCRIPT", "No matching script")
FULL = Refused("OOM", "command not allowed")
GONE = Unanswered("gone", sent=False)


def exchanges(*nodes: tuple[str, int]) -> Exchanges:
    """Those of a client of one server, or of a cluster of *nodes*."""
    return Exchanges(Topology(nodes) if nodes else None, SystemClock(), 5.0)


def played(exchanging: Exchanging[Any] | Batching, *answers: Any) -> tuple[Any, list[Exchange]]:
    """What *exchanging* ended with, where each exchange is answered by the next of *answers*; and the exchanges."""
    left: list[Any] = list(answers)
    seen: list[Exchange] = []

    def answered(exchange: Exchange | Together) -> Any:
        if isinstance(exchange, Together):
            seen.extend(exchange.exchanges)
            return [left.pop(0) for _ in exchange.exchanges]
        seen.append(exchange)
        reply = left.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    try:
        outcome = drive(exchanging, answered)
    except (Refused, Unanswered, Underreplicated) as failure:
        outcome = failure
    assert left == []
    return outcome, seen


def test_a_call_is_one_exchange_with_a_function() -> None:
    reply, (exchange,) = played(exchanges().of(CALL), [7])
    assert (reply, exchange.address, exchange.commands) == (7, None, (BY_NAME,))
    assert exchange.follow_up([7]) == ()
    assert exchange.follow_up([Refused("LOADING", "")]) == ()


def first_exchange(each: Exchanges) -> Exchange:
    """The first exchange of a call."""
    return played(each.of(CALL), [7])[1][0]


@pytest.mark.parametrize("loaded", ["OK", Refused("ERR", "Library 'shardq_x' already exists")], ids=["new", "there"])
def test_a_node_that_does_not_know_the_function_gets_the_library_and_the_call_again(loaded: Any) -> None:
    exchange = first_exchange(exchanges())
    assert exchange.follow_up([UNKNOWN]) == (LOAD,)
    assert exchange.follow_up([loaded]) == (BY_NAME,)
    assert exchange.follow_up([7]) == ()


def test_where_the_library_is_removed_again_the_call_goes_once_without_it() -> None:
    each = exchanges()
    exchange = first_exchange(each)
    assert exchange.follow_up([UNKNOWN]) == (LOAD,)
    assert exchange.follow_up(["OK"]) == (BY_NAME,)
    assert exchange.follow_up([UNKNOWN]) == (BY_HASH,)
    assert first_exchange(each).commands == (BY_NAME,)


@pytest.mark.parametrize("refused", [FULL, Refused("NOPERM", "")], ids=lambda each: each.code)
def test_a_node_that_refuses_the_library_gets_the_script_by_its_hash_then_by_its_source(refused: Refused) -> None:
    each = exchanges()
    exchange = first_exchange(each)
    assert exchange.follow_up([UNKNOWN]) == (LOAD,)
    assert exchange.follow_up([refused]) == (BY_HASH,)
    assert exchange.follow_up([NO_SCRIPT]) == (BY_SOURCE,)
    assert exchange.follow_up([NO_SCRIPT]) == ()
    assert first_exchange(each).commands == (BY_HASH,)  # and so does what comes next


def test_what_refuses_the_library_and_the_call_alike_is_told() -> None:
    exchange = first_exchange(exchanges())
    assert exchange.follow_up([UNKNOWN]) == (LOAD,)
    assert exchange.follow_up([Refused("READONLY", "")]) == ()


def test_a_call_that_waits_for_replicas_is_judged_by_both_answers() -> None:
    few, (exchange,) = played(exchanges().of(Call(LEN, ("{q}",), replicas=2)), [7, 1])
    assert exchange.commands[1][:2] == ("WAIT", 2)
    assert isinstance(few, Underreplicated)
    assert (few.reply, few.confirmed) == (7, 1)


def test_a_plain_command_has_no_source() -> None:
    reply, (exchange,) = played(exchanges().of(Ask(("INFO",), until=9.0)), [b"info"])
    assert (reply, exchange.commands, exchange.until) == (b"info", (("INFO",),), 9.0)
    assert exchange.follow_up([UNKNOWN]) == ()


@pytest.mark.parametrize("step", [CALL, Ask(("TTL", "{q}"), "{q}")], ids=["call", "ask"])
def test_a_slot_that_moved_is_asked_for_at_its_owner_from_then_on(step: Any) -> None:
    each = exchanges(A)
    reply, seen = played(each.of(step), [Redirected("MOVED", B)], [7])
    assert (reply, [exchange.address for exchange in seen]) == (7, [A, B])
    assert each.owner("{q}") == B


def test_an_address_without_a_host_is_on_the_host_that_was_asked() -> None:
    _, seen = played(exchanges(A).of(CALL), [Redirected("MOVED", ("", 9))], [7])
    assert seen[1].address == ("a", 9)


def test_a_slot_that_is_moving_is_asked_for_elsewhere_this_once() -> None:
    each = exchanges(A)
    reply, seen = played(each.of(CALL), [Redirected("ASK", B)], [b"OK", 7])
    assert (reply, seen[1].address, seen[1].commands) == (7, B, (("ASKING",), BY_NAME))
    assert each.owner("{q}") == A


def test_a_function_that_is_unknown_where_the_slot_goes_is_loaded_there() -> None:
    reply, seen = played(exchanges(A).of(CALL), [Redirected("ASK", B)], [b"OK", 7])
    assert (reply, seen[1].follow_up([b"OK", UNKNOWN])) == (7, (LOAD,))
    assert seen[1].follow_up([b"OK"]) == (("ASKING",), BY_NAME)


def test_an_owner_that_keeps_changing_is_tried_again_later() -> None:
    moves = [[Redirected("MOVED", (A, B)[turn % 2])] for turn in range(REDIRECTIONS)]
    refused, _ = played(exchanges(A).of(CALL), *moves)
    assert isinstance(refused, Refused)
    assert refused.code == "TRYAGAIN"


@pytest.mark.parametrize(("failure", "next_owner"), [(GONE, B), (AllBusy(1, 2.0), A)], ids=["gone", "crowded"])
@pytest.mark.parametrize("batched", [False, True], ids=["call", "batch"])
def test_a_node_that_may_be_gone_is_not_asked_next_time(failure: Unanswered, next_owner: Any, batched: bool) -> None:
    each = exchanges(A, B)
    outcome, _ = played(each.of_batch(Batch((CALL,))) if batched else each.of(CALL), failure)
    assert outcome in (failure, [failure])
    assert each.owner("{q}") == next_owner


def test_the_calls_of_a_batch_go_together_to_each_node() -> None:
    calls = tuple(Call(LEN, (f"{{{name}}}",), replicas=replicas) for name, replicas in (("p", 0), ("q", 2), ("r", 0)))
    each = exchanges(A)
    assert each.topology is not None
    each.topology.moved(slot("{q}"), B)
    outcomes, seen = played(each.of_batch(Batch(calls)), [1, 3], [2, 2])
    assert outcomes == [1, 2, 3]
    assert [(exchange.address, len(exchange.commands)) for exchange in seen] == [(A, 2), (B, 2)]


def test_a_batch_goes_to_all_of_its_nodes_at_once_and_to_a_single_one_as_a_call_does() -> None:
    each = exchanges(A)
    assert each.topology is not None
    each.topology.moved(slot("{q}"), B)
    for names, kind in (("p", Exchange), ("pq", Together)):
        batch = Batch(tuple([Call(LEN, (f"{{{name}}}",)) for name in names]))
        assert isinstance(next(each.of_batch(batch)), kind)
    assert played(each.of_batch(Batch(()))) == ([], [])


def test_a_node_that_does_not_answer_a_batch_leaves_the_others_what_they_answered() -> None:
    each = exchanges(A)
    assert each.topology is not None
    each.topology.moved(slot("{q}"), B)
    calls = tuple([Call(LEN, (f"{{{name}}}",)) for name in "pqr"])
    outcomes, _ = played(each.of_batch(Batch(calls)), [1, 3], GONE)
    assert outcomes == [1, GONE, 3]
    assert each.owner("{q}") == A  # from the one that is gone to one that is known
    outcomes, _ = played(each.of_batch(Batch(calls)), [1, Redirected("MOVED", B), 3], Redirected("MOVED", B), [2])
    assert (outcomes, each.owner("{q}")) == ([1, 2, 3], B)


@pytest.mark.parametrize("refused", [UNKNOWN, Redirected("MOVED", A), Redirected("ASK", A)], ids=lambda each: each.code)
def test_a_call_of_a_batch_that_was_not_run_is_sent_again_by_itself(refused: Refused) -> None:
    outcomes, seen = played(exchanges(A).of_batch(Batch((CALL, CALL, CALL))), [1, refused, 3], [2])
    assert (outcomes, len(seen)) == ([1, 2, 3], 2)
    failed, _ = played(exchanges(A).of_batch(Batch((CALL, CALL))), [1, refused], GONE)
    assert failed == [1, GONE]


def test_a_refused_call_of_a_batch_is_its_outcome() -> None:
    oom = Refused("OOM", "")
    assert played(exchanges().of_batch(Batch((CALL, CALL))), [oom, 2])[0] == [oom, 2]


def test_a_wait_is_ended_at_the_server_that_it_is_on() -> None:
    _, (exchange,) = played(exchanges(A).unblocked(3, B, "peer"), [1])
    assert (exchange.address, exchange.server, exchange.commands) == (B, "peer", (("CLIENT", "UNBLOCK", 3),))
    assert exchange.until < math.inf


@pytest.mark.parametrize("answer", [[1], [0], GONE, [Refused("NOPERM", "")], [Refused("ERR", "")]], ids=repr)
def test_where_a_wait_may_not_be_ended_no_other_is(answer: Any) -> None:
    each = exchanges()
    assert played(each.unblocked(None, None, None)) == (None, [])
    played(each.unblocked(3, None, None), answer)
    denied = isinstance(answer, list) and isinstance(answer[0], Refused)
    assert played(each.unblocked(4, None, None), *([] if denied else [[1]]))[0] is None


@pytest.mark.parametrize(("left", "limit"), [(3.0, 3.0), (99.0, 5.0), (-1.0, 0.1)])
def test_a_try_has_as_much_time_as_its_caller_but_not_too_little(left: float, limit: float) -> None:
    clock = ManualClock()
    assert Exchanges(None, clock, 5.0).limit(clock.monotonic() + left) == pytest.approx(limit)
