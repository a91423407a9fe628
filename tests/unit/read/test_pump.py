"""The pump, driven by hand: how long it waits, what it asks for, who gets what, what happens on trouble."""

from __future__ import annotations

from typing import Any

import pytest

from shardq.ops.queue.server_time import ServerTime
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Armed, Call, Refused, Sleep, Step, Unanswered
from shardq.ops.read.lately import LEARNING_READS
from shardq.ops.read.pump import pump
from shardq.ops.read.waiting import MAX_PER_CALL, ReadRequest, ReadWaiter, waiting_of
from shardq.protocol.keys import MAX_PLAIN_KEYS
from shardq.testing import ManualClock
from shardq.timing import Purgatory, Timer
from tests.unit.driving import Driven, drive, state_of
from tests.unit.wire import NOW, name_of, read_head
from tests.unit.wire import read_reply as reply

NEVER = float("inf")
FIXED = MAX_PLAIN_KEYS  # keys that a read of one declares beside the streams


def row(number: int) -> list[Any]:
    """A message, as `read` tells it."""
    return [b"1700000000000-%d" % number, [b"k", b"t", b"b", b"x"]]


class Room:
    """Those who wait on one queue, with a clock that only waits move."""

    def __init__(self, **config: Any) -> None:
        self.clock = ManualClock()
        self.state: QueueState = state_of(self.clock, **config)
        self.state.server_time = ServerTime.first(NOW, 0.0, 0.0)
        self.purgatory = Purgatory(Timer(clock=self.clock))

    def enter(self, count: int = 1, block: float = 5, visibility: float = 30, wake_at: float = NEVER) -> ReadWaiter:
        """One more, whose look just found nothing."""
        now = self.clock.monotonic()
        waiting, request = waiting_of(self.state), ReadRequest(count, visibility, None)
        waiter = ReadWaiter(waiting, request, until=now + block, read_at=now, wake_at=wake_at)
        waiting.join(waiter, self.purgatory, None)
        return waiter

    def pump(self, *replies: Any, takes: float | None = None) -> Driven[None]:
        """Run the pump; *replies* are to its looks, armed or not. An armed one takes *takes* s, or its whole block."""
        left = list(replies)

        def answer(step: Step) -> Any:
            if isinstance(step, Call) and step.script.name != "read":
                return [b"", []]
            told = left.pop(0) if len(left) > 1 else left[0]
            if not isinstance(step, Armed) or isinstance(told, BaseException):
                return told
            self.clock.advance(step.block_ms / 1000 if takes is None else takes)
            woken, looked = told if isinstance(told, tuple) else (None, told)
            before = [[b"%d" % (NOW // 1000), b"0"] if step.timed else None, woken]
            return [*before, looked] if step.call else before

        return drive(pump(self.state), answer, self.clock)


@pytest.fixture
def room() -> Room:
    """A queue of four streams on which nobody waits yet."""
    return Room()


def armed(done: Driven[None]) -> list[Armed]:
    """The armed reads among the steps."""
    return [step for step in done.steps if isinstance(step, Armed)]


def read_of(step: Armed) -> Call:
    """The read behind the wait."""
    assert step.call
    return step.call


def kinds(done: Driven[None]) -> list[str]:
    """What was done, in order."""
    names: dict[type, str] = {Armed: "armed", Sleep: "sleep"}
    return [name_of(step) if isinstance(step, Call) else names[type(step)] for step in done.steps]


def test_where_nobody_waits_nothing_is_done(room: Room) -> None:
    assert kinds(room.pump(reply())) == []


def test_a_wait_is_in_slices_and_ends_when_the_last_gives_up(room: Room) -> None:
    first, second = room.enter(block=0.4), room.enter(block=2.5)
    done = room.pump(reply())
    assert [step.block_ms for step in armed(done)] == [1000, 1000, 500]
    assert (first.rows, second.rows, room.clock.monotonic()) == ([], [], 2.5)
    assert len(room.purgatory) == 0


def test_a_wait_ends_when_the_next_lease_does(room: Room) -> None:
    room.enter(wake_at=0.25)
    done = room.pump(reply(wait=120), reply(row(1)))
    assert [step.block_ms for step in armed(done)] == [250, 120]
    assert [step.wake_at for step in armed(done)] == [0.25, pytest.approx(0.37)]


SLEEPING = reply(wait=-2)


def notified(*hints: bytes) -> tuple[Any, None]:
    """What a wait brings, as XREADGROUP tells it."""
    return [[b"key", [[b"1-%d" % at, [b"s", hint]] for at, hint in enumerate(hints)]]], None


def test_who_sleeps_while_others_watch_sends_no_read_behind_the_wait(room: Room) -> None:
    room.enter(block=9)
    first, second, *_ = armed(room.pump(SLEEPING, notified(b"@%d" % (NOW + 700)), reply(row(1)), takes=0.5))
    assert (first.call is None, second.call) == (False, None)
    assert (second.block_ms, second.wake_at) == (1000, NEVER)


def test_who_is_woken_to_watch_looks_when_told(room: Room) -> None:
    room.enter(block=9)
    done = room.pump(SLEEPING, notified(b"@%d" % (NOW + 700)), reply(row(1)), takes=0.5)
    assert kinds(done) == ["armed", "armed", "armed"]
    *_, watching = armed(done)
    assert watching.wake_at == pytest.approx(0.5 + 0.7)
    assert int(read_head(read_of(watching)).watch) == NOW + 700


def test_who_was_blocked_before_anybody_watched_heeds_what_it_is_told_too(room: Room) -> None:
    """Its read was behind the wait, and found nothing: else nobody would watch for what comes at that moment."""
    room.enter(block=9)
    passed, _ = notified(b"@%d" % (NOW + 700))
    *_, watching = armed(room.pump((passed, SLEEPING), reply(row(1)), takes=0.5))
    assert watching.wake_at == pytest.approx(0.7)
    assert int(read_head(read_of(watching)).watch) == NOW + 700


def test_who_is_told_to_read_and_to_watch_reads_and_says_that_it_was_to_watch(room: Room) -> None:
    room.enter(block=9)
    both = notified(b"@%d" % (NOW + 700), b"3")
    done = room.pump(SLEEPING, both, reply(row(1)), takes=0.5)
    [read] = [step for step in done.steps if isinstance(step, Call)]
    assert int(read_head(read).watch) == NOW + 700


@pytest.mark.parametrize("hints", [(b"",), (b"3",), (b"@%d" % (NOW + 700), b"3"), (b"@soon",), ()])
def test_what_else_ends_the_sleep_is_followed_by_an_ordinary_look(room: Room, hints: tuple[bytes, ...]) -> None:
    waiter = room.enter(block=9)
    assert kinds(room.pump(SLEEPING, notified(*hints), reply(row(1)), takes=0.5)) == ["armed", "armed", "read"]
    assert waiter.rows


def test_who_sleeps_until_its_time_is_up_looks_once_more(room: Room) -> None:
    room.enter(block=0.7)
    assert kinds(room.pump(SLEEPING, (None, None), SLEEPING, takes=0.35)) == ["armed", "armed", "read"]


def test_the_message_comes_with_the_wake_up(room: Room) -> None:
    waiter = room.enter()
    done = room.pump(reply(row(1)), takes=0.3)
    assert kinds(done) == ["armed"]
    assert [each.message_id for each in waiter.rows or []] == ["1700000000000-1-2"]


def test_several_waiters_are_served_by_one_look_in_order_of_arrival(room: Room) -> None:
    first, second, third = room.enter(), room.enter(count=2), room.enter()
    done = room.pump(reply(row(1), row(2), row(3), row(4)))
    assert read_head(read_of(armed(done)[0])).most == armed(done)[0].count == 4
    assert [[each.message_id[14] for each in waiter.rows or []] for waiter in (first, second, third)] == [
        ["1"], ["2", "3"], ["4"],
    ]  # fmt: skip


def test_one_look_serves_only_those_who_want_the_same_lease(room: Room) -> None:
    short, long = room.enter(visibility=5), room.enter(visibility=60)
    done = room.pump(reply(row(1)), reply(row(2)), takes=0.1)
    assert [read_head(read_of(step)).visibility for step in armed(done)] == [5000]
    assert kinds(done) == ["armed", "read"]
    assert (short.rows or [])[0].deadline < (long.rows or [])[0].deadline - 50


def test_a_call_requests_at_most_a_hundred_on_behalf_of_many_and_of_one(room: Room) -> None:
    waiters = [room.enter() for _ in range(150)]
    assert armed(room.pump(reply(), takes=1))[0].count == 100
    assert all(waiter.done for waiter in waiters)
    room.enter(count=700)
    assert armed(room.pump(reply(), takes=1))[0].count == MAX_PER_CALL == 100


def test_a_waiter_learns_whether_another_read_may_find_more(room: Room) -> None:
    first = room.enter(count=3)
    room.pump(reply(row(1), kind=b"MORE"), takes=0.1)
    second = room.enter(count=3)
    room.pump(reply(row(2)), takes=0.1)
    assert (first.more, second.more) == (True, False)


def test_a_look_that_found_only_what_had_died_is_followed_by_an_ordinary_one(room: Room) -> None:
    """There may be more behind it, for which no notification comes."""
    waiter = room.enter()
    assert kinds(room.pump(reply(kind=b"MORE"), reply(row(1)), takes=0.1)) == ["armed", "read"]
    assert len(waiter.rows or []) == 1


def test_after_a_look_that_found_something_an_ordinary_one_comes_first(room: Room) -> None:
    """There may be more that nobody announced; only a read that finds nothing lets writers know that somebody waits."""
    room.enter()
    second = room.enter()
    done = room.pump(reply(row(1)), reply(), reply(row(2)), takes=0.1)
    assert kinds(done) == ["armed", "read", "armed"]
    assert second.rows


def test_a_new_pump_trusts_no_look_that_is_older_than_the_last_find(room: Room) -> None:
    room.enter()
    room.pump(reply(row(1)), takes=0.3)
    room.enter().read_at = 0.2
    assert kinds(room.pump(reply(row(2)))) == ["read"]


def test_what_nobody_is_left_to_take_is_given_back_by_its_tokens(room: Room) -> None:
    waiter = room.enter(count=1)

    def leave(step: Step) -> Any:
        if isinstance(step, Armed):
            waiter.cancel()
            return [[b"0", b"0"], None, reply(row(1), row(2))]
        return [NOW, b"oo"]

    done = drive(pump(room.state), leave, room.clock)
    given = [step for step in done.steps if isinstance(step, Call)]
    holder = read_head(read_of(armed(done)[0])).holder
    assert [step.args[5:] for step in given] == [tuple(f"2:1700000000000-{n}:1:{holder}:-:t" for n in (1, 2))]
    assert kinds(done) == ["armed", "give_back"]


def test_a_miss_is_followed_by_an_ordinary_look_at_once(room: Room) -> None:
    room.enter()
    assert kinds(room.pump(reply(kind=b"MISS"), reply(row(1)), takes=0.0)) == ["armed", "read"]


def test_all_streams_are_declared_up_to_256() -> None:
    for streams, declared in ((256, 256), (257, 1)):
        room = Room(streams=streams)
        room.state.hints = ("17",)
        room.enter()
        assert len(read_of(armed(room.pump(reply(row(1))))[0]).keys) == FIXED + declared


def declared_by(room: Room, told: Any) -> list[str]:
    """The streams that the next blocked read declares, which is told so."""
    room.clock.advance(1)
    room.enter()
    first, *_ = armed(room.pump(told, reply(row(1))))
    return [key.rpartition(":s")[2] for key in read_of(first).keys[FIXED:]]


def test_those_are_declared_out_of_which_messages_came_lately_until_one_is_missed() -> None:
    room, every = Room(streams=64), [str(number) for number in range(64)]
    for number in range(LEARNING_READS):
        assert declared_by(room, reply(row(number), stream=3 + number % 2)) == every
    missed = reply(kind=b"MISS", hints=b"7")
    assert [sorted(declared_by(room, missed)), declared_by(room, missed)] == [["3", "4"], every]


def test_the_server_is_told_what_its_clock_should_show_at_the_end_of_the_wait(room: Room) -> None:
    room.enter()
    assert read_of(armed(room.pump(reply(row(1))))[0]).args[1] == f"{NOW + 1000 + 1010} {NOW} {1000 + 1010}"


def test_a_lease_is_believed_in_from_when_the_server_granted_it(room: Room) -> None:
    waiter = room.enter(visibility=100)
    room.pump(reply(row(1), now=NOW + 800), takes=0.9)
    assert (waiter.rows or [])[0].deadline == pytest.approx(0.8 * 0.999 + 99)
    assert room.state.server_time
    assert room.state.server_time.ms == NOW + 800
    assert room.state.server_time.at == pytest.approx(0.8 * 0.999)


@pytest.mark.parametrize(("passed", "is_timed"), [(0.1, False), (0.11, True)])
def test_the_server_is_asked_for_its_time_only_if_no_reply_has_told_it_just_now(
    room: Room, passed: float, is_timed: bool
) -> None:
    """An answer before the wait wakes the client once more."""
    room.clock.advance(passed)
    room.enter()
    assert [step.timed for step in armed(room.pump(reply(row(1)), takes=0.01))] == [is_timed]


@pytest.mark.parametrize("code", ["UNBLOCKED", "NOGROUP", "READONLY"])
def test_a_wait_that_is_refused_is_followed_by_its_look_all_the_same(room: Room, code: str) -> None:
    waiter = room.enter()
    assert kinds(room.pump((Refused(code, ""), reply(row(1))), takes=0.1)) == ["armed", "sleep"]
    assert waiter.rows


def test_a_forgotten_script_is_followed_by_an_ordinary_look(room: Room) -> None:
    waiter = room.enter()
    assert kinds(room.pump((None, Refused("NOSCRIPT", "")), reply(row(1)))) == ["armed", "read"]
    assert waiter.rows


@pytest.mark.parametrize("code", ["READONLY", "MOVED", "TRYAGAIN"])
def test_a_refusal_that_passes_lets_all_look_for_themselves(room: Room, code: str) -> None:
    waiters = [room.enter(), room.enter()]
    room.pump((Refused(code, ""), Refused(code, "")))
    assert [(waiter.done, waiter.rows, waiter.failure, waiter.outstanding) for waiter in waiters] == [
        (True, None, None, None)
    ] * 2


def test_a_refusal_that_does_not_pass_reaches_all(room: Room) -> None:
    waiters = [room.enter(), room.enter()]
    refused = Refused("NOPERM", "")
    room.pump((refused, reply()))
    assert [waiter.failure for waiter in waiters] == [refused, refused]


def test_a_lost_reply_is_given_back_by_the_first_of_them(room: Room) -> None:
    first, second = room.enter(), room.enter()
    done = room.pump(Unanswered("reset", sent=True))
    assert first.outstanding
    assert first.outstanding.holder == read_head(read_of(armed(done)[0])).holder
    assert (second.done, second.outstanding, kinds(done)) == (True, None, ["armed", "sleep"])


def test_a_lost_reply_is_given_back_by_the_pump_where_nobody_is_left(room: Room) -> None:
    waiter = room.enter()

    def answer(step: Step) -> Any:
        if isinstance(step, Armed):
            waiter.cancel()
            return Unanswered("reset", sent=True)
        return [b"", []]

    assert kinds(drive(pump(room.state), answer, room.clock)) == ["armed", "sleep", "lost"]


def test_a_request_that_never_left_needs_no_recovery(room: Room) -> None:
    waiter = room.enter()
    room.pump(Unanswered("no route", sent=False))
    assert (waiter.done, waiter.outstanding) == (True, None)


@pytest.mark.parametrize("told", [[b"NOQUEUE"], reply(epoch=b"2")])
def test_a_queue_that_moved_lets_all_look_for_themselves(room: Room, told: Any) -> None:
    waiter = room.enter()
    room.pump(told)
    assert (waiter.done, waiter.rows, room.state.epoch) == (True, None, "")


def test_what_a_moved_queue_handed_out_is_not_lost(room: Room) -> None:
    first, second = room.enter(), room.enter()
    room.pump(reply(row(1), epoch=b"2"))
    assert len(first.rows or []) == 1
    assert (second.done, second.rows) == (True, None)


def test_the_last_waiter_does_not_expire_by_itself_and_others_do(room: Room) -> None:
    first, second = room.enter(block=1), room.enter(block=1)
    room.clock.advance(1)
    waiting = waiting_of(room.state)
    assert (waiting.expire(first), first.rows) == (True, [])
    assert (waiting.expire(second), second.done) == (False, False)


def test_when_its_time_is_up_without_answers_a_waiter_must_find_out_for_itself(room: Room) -> None:
    waiter, _ = room.enter(block=1), room.enter()
    room.clock.advance(1)
    waiting_of(room.state).overdue_at = 0.5
    assert waiting_of(room.state).expire(waiter)
    assert (waiter.done, waiter.rows) == (True, None)
