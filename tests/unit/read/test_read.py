"""The operation `read`, driven by hand: what it declares, when it reads again, what it does with lost replies."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from shardq.errors import BackendError
from shardq.ops.queue.steps import Call, Refused, Step, Unanswered, Wait
from shardq.ops.read.command import new_holder
from shardq.ops.read.give_back import RECOVER_PAGE, give_back_all
from shardq.ops.read.read import checked_count, read
from shardq.ops.read.waiting import MAX_PER_CALL, Outstanding
from shardq.testing import ManualClock
from tests.unit.driving import drive, state_of
from tests.unit.wire import ReadHead, name_of, read_head
from tests.unit.wire import read_reply as reply

ROW = [b"1700000000000-7", [b"k", b"t", b"b", b"x"]]


class Server:
    """Answers the calls of `read` in turn, the last answer for ever; no notification ever comes."""

    def __init__(self, *replies: Any) -> None:
        self._replies = list(replies)
        self.reads: list[Call] = []

    def __call__(self, step: Step) -> Any:
        if isinstance(step, Call) and step.script.name == "read":
            self.reads.append(step)
            return self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        if isinstance(step, Call) and step.script.name == "lost":
            return [b"", []]
        return None

    @property
    def heads(self) -> list[ReadHead]:
        """What each read wanted."""
        return [read_head(call) for call in self.reads]


def declared(call: Call) -> list[str]:
    """The numbers of the streams that a call declares, in their order."""
    return [key.rpartition(":s")[2] for key in call.keys[len(call.script.keys) - len(call.others) :]]


def test_what_is_found_is_returned_without_waiting() -> None:
    clock, server = ManualClock(), Server(reply(ROW))
    done = drive(read(state_of(clock), 1, block=5), server, clock)
    assert [each.message_id for each in done.result or []] == ["1700000000000-7-2"]
    assert (done.calls, clock.monotonic()) == (["read"], 0)


def test_nothing_is_waited_for_without_a_block() -> None:
    clock = ManualClock()
    done = drive(read(state_of(clock), 1), Server(reply()), clock)
    assert (done.result, done.calls, len(done.steps)) == ([], ["read"], 1)


def test_who_is_told_to_look_for_itself_does_so_until_its_deadline() -> None:
    clock = ManualClock()
    done = drive(read(state_of(clock), 1, block=2.5), Server(reply()), clock)
    assert done.result == []
    assert clock.monotonic() == pytest.approx(2.5)
    assert len(done.calls) == 4  # the last read is at the deadline


def test_a_waiter_knows_when_the_next_lease_ends() -> None:
    clock = ManualClock()
    done = drive(read(state_of(clock), 1, block=5), Server(reply(wait=120), reply(ROW)), clock)
    assert [step.waiter.wake_at for step in done.steps if isinstance(step, Wait)] == [pytest.approx(0.12)]
    assert len(done.result or []) == 1


def ending(**ends: Any) -> Any:
    """Looks that find nothing, and a wait that ends so."""
    server, given = Server(reply()), ends.pop("given", None)

    def answer(step: Step) -> Any:
        if isinstance(step, Wait):
            step.waiter.rows, step.waiter.done = given, True
            for name, value in ends.items():
                setattr(step.waiter, name, value)
            return None
        return server(step)

    return answer


def test_what_a_waiter_was_given_is_returned_without_another_look() -> None:
    clock = ManualClock()
    given: list[Any] = ["row"]
    done = drive(read(state_of(clock), 1, block=5), ending(given=given), clock)
    assert done.result is given
    assert done.calls == ["read"]


def test_a_waiter_first_gives_back_what_a_look_was_granted_whose_reply_was_lost() -> None:
    clock = ManualClock()
    waits = iter([ending(outstanding=Outstanding("lost", 5, 6)), ending(given=[])])
    turns: list[Any] = [next(waits)]

    def answer(step: Step) -> Any:
        done = turns[0](step)
        if isinstance(step, Wait):
            turns[0] = next(waits, turns[0])
        return done

    done = drive(read(state_of(clock), 1, block=5), answer, clock)
    assert done.calls == ["read", "lost", "read"]
    assert [step.args for step in done.steps if isinstance(step, Call) and step.script.name == "lost"] == [
        ("lost", 5, 6, RECOVER_PAGE, ""),
    ]


def test_what_no_look_can_mend_ends_the_read() -> None:
    clock = ManualClock()
    with pytest.raises(BackendError, match="denies"):
        drive(read(state_of(clock), 1, block=5), ending(failure=Refused("NOPERM", "")), clock)


def test_the_server_is_told_how_long_the_reader_will_block() -> None:
    clock, server = ManualClock(), Server(reply())
    drive(read(state_of(clock), 1, block=1.5), server, clock)
    assert [head.blocks for head in server.heads] == [1000, 500, 0]


def test_a_few_streams_are_all_declared() -> None:
    clock, server = ManualClock(), Server(reply())
    state = state_of(clock)
    drive(read(state, 1), server, clock)
    assert server.reads[0].keys[-4:] == tuple(state.keys.stream(number) for number in range(4))


def test_of_many_streams_those_are_declared_that_come_next() -> None:
    clock = ManualClock()
    state = state_of(clock, streams=500)
    state.hints = ("17", "3")
    server = Server(reply(hints=b"4,5"), reply())
    drive(read(state, 1), server, clock)
    drive(read(state, 1, prefer=99), server, clock)
    assert [declared(call) for call in server.reads] == [["17", "3"], ["4", "5", "99"]]


def test_a_miss_is_followed_by_another_look_at_once() -> None:
    clock, server = ManualClock(), Server(reply(kind=b"MISS", hints=b"300"), reply(ROW))
    done = drive(read(state_of(clock, streams=500), 1), server, clock)
    assert (len(done.result or []), clock.monotonic()) == (1, 0)
    assert declared(server.reads[1])[-1] == "300"


def test_where_all_wait_in_their_turns_no_stream_is_declared_until_a_miss() -> None:
    """A declared stream costs both sides. 64 reads say that streams have nothing, and one miss says that they have."""
    clock, state = ManualClock(), state_of(ManualClock(), streams=16)
    waited = reply(again=((b"d:1700000000000-7:1:", b"", b"o:1:t0:0:m0:x", b"1700000000000"),))
    server = Server(*[waited] * 66, reply(kind=b"MISS", hints=b"5"), reply(ROW), waited)
    for _ in range(68):
        drive(read(state, 1), server, clock)
    assert [len(declared(call)) for call in server.reads] == [16] * 64 + [0, 0, 0, 1, 16]


def test_a_stream_that_brings_something_keeps_them_declared() -> None:
    clock, state = ManualClock(), state_of(ManualClock(), streams=16)
    waited = reply(again=((b"d:1700000000000-7:1:", b"", b"o:1:t0:0:m0:x", b"1700000000000"),))
    server = Server(*[waited] * 63, reply(ROW), waited)
    for _ in range(127):
        drive(read(state, 1), server, clock)
    assert {len(declared(call)) for call in server.reads} == {16}


@pytest.mark.parametrize("kind", [b"MISS", b"MORE"])
def test_only_a_miss_makes_the_next_reads_declare_more_streams(kind: bytes) -> None:
    clock, server = ManualClock(), Server(reply(kind=kind, hints=b"3,4,5,6"), reply(ROW))
    state = state_of(clock, streams=500)
    state.hints = ("7", "8", "9", "10")
    drive(read(state, 1), server, clock)
    assert state.width == (4 if kind == b"MISS" else 2)
    assert [declared(call) for call in server.reads] == [["7", "8"], ["3", "4", "5", "6"][: state.width]]


def test_a_call_that_brings_fewer_but_says_that_there_are_more_is_followed_by_another() -> None:
    clock = ManualClock()
    server = Server(reply(*rows(1, 40), kind=b"MORE"), reply(*rows(41, 20)))
    done = drive(read(state_of(clock), 80), server, clock)
    assert (len(done.result or []), [head.most for head in server.heads]) == (60, [80, 40])


def test_each_look_has_a_holder_of_its_own() -> None:
    clock, server = ManualClock(), Server(reply())
    drive(read(state_of(clock), 1, block=3), server, clock)
    assert len({head.holder for head in server.heads}) == 4


def test_a_lost_reply_is_given_back_before_the_next_look() -> None:
    clock, server = ManualClock(), Server(Unanswered("reset", sent=True), reply(ROW))
    done = drive(read(state_of(clock), 1), server, clock)
    assert done.calls == ["read", "lost", "read"]
    lost = next(step for step in done.steps if isinstance(step, Call) and step.script.name == "lost")
    assert lost.args[0] == server.heads[0].holder


def test_a_request_that_never_left_needs_no_recovery() -> None:
    clock = ManualClock()
    done = drive(read(state_of(clock), 1), Server(Unanswered("no route", sent=False), reply(ROW)), clock)
    assert done.calls == ["read", "read"]


def rows(first: int, count: int) -> list[Any]:
    """Entries that a read brings."""
    return [[b"1700000000000-%d" % number, ROW[1]] for number in range(first, first + count)]


def test_a_large_read_takes_several_calls_until_one_brings_less_than_it_asked_for() -> None:
    clock = ManualClock()
    server = Server(reply(*rows(1, MAX_PER_CALL)), reply(*rows(101, MAX_PER_CALL)), reply(*rows(201, 7)))
    done = drive(read(state_of(clock), 1000), server, clock)
    assert len(done.result or []) == 2 * MAX_PER_CALL + 7
    assert [head.most for head in server.heads] == [MAX_PER_CALL] * 3
    assert len({head.holder for head in server.heads}) == 3  # each has leases of its own


def test_a_large_read_asks_for_no_more_than_it_wants() -> None:
    clock = ManualClock()
    server = Server(reply(*rows(1, MAX_PER_CALL)), reply(*rows(101, 50)))
    done = drive(read(state_of(clock), MAX_PER_CALL + 50), server, clock)
    assert (len(done.result or []), [head.most for head in server.heads]) == (MAX_PER_CALL + 50, [MAX_PER_CALL, 50])


def test_what_a_large_read_has_in_hand_is_not_lost_to_trouble() -> None:
    clock, outstanding = ManualClock(), Outstanding()
    server = Server(reply(*rows(1, MAX_PER_CALL)), Refused("NOPERM", ""))
    done = drive(read(state_of(clock), 1000, outstanding=outstanding), server, clock)
    assert len(done.result or []) == len(outstanding.rows) == MAX_PER_CALL


def test_a_large_read_that_is_cancelled_gives_back_all_that_it_was_granted() -> None:
    clock = ManualClock()
    in_hand = drive(read(state_of(clock), 1), Server(reply(ROW)), clock).result or []
    outstanding = Outstanding("lost", 5, 6, in_hand)
    done = drive(give_back_all(state_of(clock), outstanding, 9.0), lambda _: [b"", []], clock)
    given, searched = [step for step in done.steps if isinstance(step, Call)]
    assert (name_of(given), given.args[5:]) == ("give_back", (outstanding.rows[0].token,))
    assert (name_of(searched), searched.args[:3]) == ("lost", ("lost", 5, 6))


def test_a_refusal_that_does_not_pass_ends_the_read() -> None:
    clock = ManualClock()
    with pytest.raises(BackendError):
        drive(read(state_of(clock), 1, block=5), lambda _: Refused("WRONGTYPE", ""), clock)


def test_a_lease_is_believed_in_from_before_it_was_asked_for() -> None:
    clock = ManualClock()
    done = drive(read(state_of(clock), 1, visibility=100), Server(reply(ROW)), clock)
    assert [each.deadline for each in done.result or []] == [99]


@pytest.mark.parametrize("bad", [0, 1001, True, 1.0, "1", None])
def test_bad_counts_are_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="count"):
        checked_count(bad)


def test_a_good_count_is_returned() -> None:
    assert checked_count(1000) == 1000


def test_no_two_reads_have_one_holder_also_in_a_forked_child_or_with_a_seed() -> None:
    """The holder tells the leases of one try from all others, so a copy of the generator would mix them up."""
    random.seed(7)
    first = new_holder()
    random.seed(7)
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, new_holder().encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert len({first, new_holder(), os.read(reading, 100).decode()}) == 3
    os.close(reading)
    os.close(writing)
