"""Callers of one verb, driven by hand in any order: a naive server counts what was stored, and each caller is told."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shardq.errors import BackendTimeout, DurabilityUnknown, OutcomeUnknown, QueueFull
from shardq.ops.queue.steps import Call, Op, Refused, Unanswered, Withdrawn
from shardq.ops.sharing.caller import Caller, Phase, must_tell, own, posted
from shardq.ops.sharing.coalescing import Coalescer
from shardq.ops.sharing.shared_call import SharedCall
from shardq.ops.sharing.verb import Verb
from shardq.protocol.scripts import load
from tests.selection import COMMAND

MOST = 3


@dataclass
class Tried:
    call: Call


class Storing(Verb[int, int]):
    """Stores numbers. Each call has a sequence of its own, by which the server knows it again."""

    def __init__(self) -> None:
        self.sequences = 0
        self.held = 0

    def bounds(self) -> tuple[int, int]:
        return 4, 1000

    def weight(self, item: int) -> int:
        return item % 100

    def kind(self, item: int) -> int:
        return item % 2

    def attempt(self, items: Sequence[int], until: float) -> Tried | None:
        if self.sequences % 5 == 4:  # the queue must be opened first
            return None
        return Tried(self.call(items))

    def results(self, tried: Tried, reply: Any) -> list[int | Exception] | None:
        if reply[0] != "OK":
            return None
        self.held -= 1
        return list(reply[1])

    def drop(self, tried: Tried) -> None:
        self.held -= 1

    def op(self, items: Sequence[int], until: float, tried: Tried | None) -> Op[list[int | Exception]]:
        if tried is None:
            yield Call(load("open"), ())
        call = tried.call if tried else self.call(items)
        try:
            while True:
                try:
                    word, numbers = yield call
                except (Refused, Unanswered):
                    continue
                return list(numbers) if word == "OK" else [QueueFull("full")] * len(items)
        finally:
            self.held -= 1

    def call(self, items: Sequence[int]) -> Call:
        self.sequences += 1
        self.held += 1
        return Call(load("write"), (), (self.sequences, *items))


class Server:
    """Stores the items of a call once."""

    def __init__(self) -> None:
        self.stored: list[int] = []
        self._seen: set[Any] = set()

    def execute(self, call: Call) -> list[Any]:
        sequence, *items = call.args
        if sequence not in self._seen:
            self._seen.add(sequence)
            self.stored += items  # type: ignore[arg-type]
        return ["OK", items]


class Callers(RuleBasedStateMachine):
    """Callers come, lead, leave and are told, in any order."""

    @initialize()
    def begin(self) -> None:
        self.verb = Storing()
        self.coalescer = Coalescer(self.verb)
        self.server = Server()
        self.callers: list[Caller[int, int]] = []
        self.gone: set[int] = set()
        self.active: dict[SharedCall[int, int], Caller[int, int]] = {}
        self.told: list[int] = []

    def of(self, *phases: Phase) -> list[Caller[int, int]]:
        return [caller for caller in self.callers if caller.phase in phases]

    @rule(until=st.integers(1, 100))
    def come(self, until: int) -> None:
        caller: Caller[int, int] = Caller(len(self.callers), until, lambda: None)
        self.callers.append(caller)
        self.coalescer.join(caller, 1)

    @rule(until=st.integers(1, 100), lane=st.integers(0, 2))
    def post(self, until: int, lane: int) -> None:
        """Somebody comes whose order matters, and waits for nothing; those of a lane are of one kind."""
        item = len(self.callers)
        caller: Caller[int, int] = posted(item, until, (lane, item % 2))
        caller.wake = lambda: self.told.append(item) if must_tell(caller) else None
        self.callers.append(caller)
        if self.coalescer.add(caller, MOST):
            self.start()

    def start(self) -> None:
        shared = self.coalescer.take()
        if shared is not None:
            self.active[shared] = shared.callers[0]
        else:
            assert not self.coalescer.done(MOST), "nobody who waits can go, so nobody must start"

    @precondition(lambda self: self.of(Phase.LEADING))
    @rule(data=st.data())
    def lead(self, data: st.DataObject) -> None:
        leader = data.draw(st.sampled_from(self.of(Phase.LEADING)))
        shared = self.coalescer.lead(leader)
        self.active[shared] = leader
        assert leader in shared.callers
        assert len(shared.callers) <= 4
        assert len({caller.item % 2 for caller in shared.callers}) == 1

    def threads(self) -> list[Caller[int, int]]:
        """Those who wait, and may lead."""
        return [caller for caller in self.of(Phase.WAITING) if caller.lane is None]

    @precondition(lambda self: self.threads())
    @rule(data=st.data())
    def step_forward(self, data: st.DataObject) -> None:
        self.coalescer.step_forward(data.draw(st.sampled_from(self.threads())), MOST)

    @precondition(lambda self: self.active)
    @rule(data=st.data(), ends=st.sampled_from(["answered", "lost", "unheard", "unsent", "refused"]))
    def make_a_try(self, data: st.DataObject, ends: str) -> None:
        shared = data.draw(st.sampled_from(list(self.active)))
        call = shared.step()
        if call is None:
            self.end(shared)
            return
        assert isinstance(call, Call)
        if not self.send(data, shared, call, ends):
            return
        if call.script.name == "open":
            outcome: Any = [b"OK"] if ends == "answered" else Unanswered("", sent=False)
            if not isinstance(outcome, list):
                return
        elif ends in ("answered", "lost"):
            outcome = self.server.execute(call)
            outcome = Unanswered("lost", sent=True) if ends == "lost" else outcome
        else:
            outcome = {
                "unheard": Unanswered("unheard", sent=True),
                "unsent": Unanswered("unsent", sent=False),
                "refused": Refused("LOADING", ""),
            }[ends]
        shared.answer(outcome)
        if shared.ended:
            self.end(shared)

    def send(self, data: st.DataObject, shared: SharedCall[int, int], call: Call, ends: str) -> bool:
        """Let callers leave before and after the driver sends *call*. Return False if it sends none."""
        self.some_leave(data, shared)
        if ends != "unsent" and call.on_send is not None:
            try:
                call.on_send()
            except Withdrawn as withdrawn:
                assert any(caller.phase is Phase.ENDED for caller in shared.callers)
                shared.answer(withdrawn)
                return False
        self.some_leave(data, shared)
        return True

    def some_leave(self, data: st.DataObject, shared: SharedCall[int, int]) -> None:
        led = self.active[shared]
        present = [each for each in shared.callers if each is not led and each.phase is Phase.IN_CALL]
        for caller in data.draw(st.lists(st.sampled_from(present), unique=True)) if present else ():
            assert self.coalescer.give_up(caller)
            self.gone.add(caller.item)

    @precondition(lambda self: self.of(Phase.WAITING, Phase.IN_CALL))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """A caller's time is up, or it was cancelled. A leader who leaves hands its call over."""
        caller = data.draw(st.sampled_from(self.of(Phase.WAITING, Phase.IN_CALL)))
        assert self.coalescer.give_up(caller)
        self.gone.add(caller.item)
        led = next((shared for shared, leader in self.active.items() if leader is caller), None)
        if led is not None:
            del self.active[led]
            if led.heir() is None:
                assert led.step() is None
                self.coalescer.leave()

    @precondition(lambda self: self.of(Phase.LEADING))
    @rule(data=st.data())
    def leave_when_appointed(self, data: st.DataObject) -> None:
        caller = data.draw(st.sampled_from(self.of(Phase.LEADING)))
        assert not self.coalescer.give_up(caller)
        self.active[self.coalescer.lead(caller)] = caller
        assert self.coalescer.give_up(caller)
        self.gone.add(caller.item)
        shared = next(shared for shared, leader in self.active.items() if leader is caller)
        del self.active[shared]
        if shared.heir() is None:
            assert shared.step() is None
            self.coalescer.leave()

    def end(self, shared: SharedCall[int, int]) -> None:
        assert shared.ended
        del self.active[shared]
        self.coalescer.leave()

    @invariant()
    def everybody_is_told_the_truth(self) -> None:
        stored = Counter(self.server.stored)
        assert not stored or max(stored.values()) == 1
        for caller in self.of(Phase.ENDED):
            match caller.result:
                case int():
                    assert caller.result == caller.item
                    assert stored[caller.item] == 1
                case OutcomeUnknown():
                    assert caller.item in self.gone
                case BackendTimeout():
                    assert caller.item in self.gone
                    assert not stored[caller.item]
                case _:
                    pytest.fail(f"told {caller.result}")

    @invariant()
    def of_each_lane_one_call_is_under_way_and_its_order_is_kept(self) -> None:
        stored: dict[Any, list[int]] = {}
        for item in self.server.stored:
            if self.callers[item].lane is not None:
                stored.setdefault(self.callers[item].lane, []).append(item)
        assert all(items == sorted(items) for items in stored.values())
        of_calls = [
            {caller.lane for caller in shared.callers if caller.lane is not None} for shared in self.coalescer.shared
        ]
        assert sum(map(len, of_calls)) == len(set().union(*of_calls))

    @invariant()
    def somebody_leads_where_somebody_waits(self) -> None:
        leading = len(self.of(Phase.LEADING)) + len(self.active)
        assert self.coalescer.calls == leading <= MOST
        assert leading or not self.of(Phase.WAITING)

    def teardown(self) -> None:
        for _ in range(10_000):
            if not self.of(Phase.LEADING) and not self.active:
                break
            for caller in self.of(Phase.LEADING):
                self.active[self.coalescer.lead(caller)] = caller
            for shared in list(self.active):
                call = shared.step()
                if call is not None:
                    is_open = isinstance(call, Call) and call.script.name == "open"
                    shared.answer([b"OK"] if is_open else self.server.execute(call))  # type: ignore[arg-type]
                if shared.ended:
                    self.end(shared)
        assert all(caller.phase is Phase.ENDED for caller in self.callers)
        assert self.verb.held == 0
        assert not self.coalescer.shared
        assert len(self.coalescer._lanes) == 0
        self.everybody_is_told_the_truth()


Callers.TestCase.settings = settings(
    max_examples=50 if COMMAND == "test" else 200, stateful_step_count=40, deadline=None
)
TestCallers = Callers.TestCase


def caller_of(item: int, until: float = 10.0, lane: str | None = None) -> Caller[int, int]:
    return Caller(item, until, lambda: None, lane)


def test_those_of_a_lane_that_a_call_has_stand_aside_until_it_ends() -> None:
    coalescer = Coalescer(Storing())
    callers = [caller_of(0, lane="a"), caller_of(2, lane="a"), caller_of(4, lane="b"), caller_of(6)]
    assert [coalescer.add(caller, MOST) for caller in callers] == [True, False, False, False]
    coalescer.verb.bounds = lambda: (1, 1000)  # type: ignore[method-assign]
    first = coalescer.take()
    assert first is not None
    assert coalescer.may_start(MOST)
    second = coalescer.take()
    assert second is not None
    assert coalescer.may_start(MOST)
    third = coalescer.take()
    assert third is not None
    assert [[each.item for each in call.callers] for call in (first, second, third)] == [[0], [4], [6]]
    assert not coalescer.may_start(MOST + 1), "the one who waits must not overtake"
    late = caller_of(8, lane="a")
    assert not coalescer.add(late, MOST + 1)
    assert coalescer.earliest() == 10.0
    first.fail(QueueFull("full"))
    assert coalescer.done(MOST + 1)
    again = coalescer.take()
    assert again is not None
    assert [each.item for each in again.callers] == [2]


def test_who_stands_aside_is_ended_at_the_time() -> None:
    coalescer = Coalescer(Storing())
    first, aside = caller_of(0, 10.0, "a"), caller_of(2, 1.0, "a")
    assert coalescer.add(first, MOST)
    shared = coalescer.take()
    assert shared is not None
    assert not coalescer.add(aside, MOST)
    assert coalescer.earliest() == 1.0
    assert coalescer.expire(1.0, 0.1) == [aside]
    assert isinstance(aside.result, BackendTimeout)
    shared.fail(QueueFull("full"))
    assert not coalescer.done(MOST)


def test_what_became_of_a_posted_caller_is_told_once() -> None:
    caller = posted(0, 10.0, None)
    caller.wake = lambda: None
    assert not must_tell(caller)
    caller.phase = Phase.ENDED
    assert must_tell(caller)
    assert not must_tell(caller)


def test_a_caller_that_is_alone_waits_for_nothing() -> None:
    coalescer = Coalescer(Storing())
    assert coalescer.enter()
    assert not coalescer.enter()
    coalescer.leave()
    assert coalescer.enter()


def test_those_who_wait_share_a_call_in_the_order_in_which_they_came() -> None:
    coalescer = Coalescer(Storing())
    assert coalescer.enter()
    waiting = [caller_of(item) for item in (0, 2, 1, 4, 6, 8)]
    assert [coalescer.join(caller, 1) for caller in waiting] == [False] * 6
    coalescer.leave()
    assert waiting[0].phase is Phase.LEADING
    assert [caller.item for caller in coalescer.lead(waiting[0]).callers] == [0, 2, 4, 6]
    coalescer.leave()
    assert [caller.item for caller in coalescer.lead(waiting[2]).callers] == [1]
    coalescer.leave()
    assert [caller.item for caller in coalescer.lead(waiting[5]).callers] == [8]


def test_a_call_has_no_more_than_it_may_weigh() -> None:
    coalescer = Coalescer(Storing())
    coalescer.verb.bounds = lambda: (100, 150)  # type: ignore[method-assign]
    coalescer.enter()
    waiting = [caller_of(item) for item in (70, 70, 70)]
    for caller in waiting:
        coalescer.join(caller, 1)
    coalescer.leave()
    assert len(coalescer.lead(waiting[0]).callers) == 2


def test_many_who_wait_are_halved_so_that_two_calls_take_turns() -> None:
    coalescer = Coalescer(Storing())
    waiting = [caller_of(item) for item in (0, 2, 4, 6, 8)]
    assert [coalescer.add(caller, MOST) for caller in waiting] == [True, False, False, False, False]
    first = coalescer.take(halved=True)
    assert first
    assert [caller.item for caller in first.callers] == [0, 2, 4]
    assert coalescer.may_start(MOST)
    second = coalescer.take(halved=True)
    assert second
    assert [caller.item for caller in second.callers] == [6, 8]


@pytest.mark.parametrize("failure", [None, QueueFull("full")])
def test_a_call_that_has_ended_is_freed_when_nobody_has_it_any_more(failure: Exception | None) -> None:
    """Not by a garbage collector: until that runs, all messages of the call would stay in memory."""
    coalescer = Coalescer(Storing())
    for item in (0, 2):
        coalescer.add(caller_of(item), MOST)
    shared = coalescer.take()
    assert shared is not None
    call = shared.step()
    assert isinstance(call, Call)
    assert call.on_send is not None
    call.on_send()
    if failure is None:
        shared.answer(Server().execute(call))
    else:
        shared.fail(failure)
    assert not coalescer.done(MOST)
    left = weakref.ref(shared)
    gc.disable()
    try:
        del shared, call
        assert left() is None
    finally:
        gc.enable()


def test_few_who_wait_are_not_halved() -> None:
    coalescer = Coalescer(Storing())
    for item in (0, 2, 4):
        coalescer.add(caller_of(item), MOST)
    shared = coalescer.take(halved=True)
    assert shared
    assert len(shared.callers) == 3


def test_beside_a_call_of_many_one_of_few_starts_only_when_they_have_waited_long() -> None:
    coalescer = Coalescer(Storing())
    for item in (0, 2, 4, 6):
        coalescer.add(caller_of(item), MOST)
    assert coalescer.take()
    assert not coalescer.add(caller_of(8), MOST)
    assert not coalescer.may_start(1, at_once=True)
    assert coalescer.add(caller_of(10), MOST)
    assert not coalescer.may_start(MOST, at_once=True)  # somebody has started


def test_somebody_who_waits_in_a_task_is_ended_at_the_time() -> None:
    coalescer = Coalescer(Storing())
    soon, late, calling = caller_of(0, 1.0), caller_of(2, 5.0), caller_of(4, 1.0)
    assert coalescer.add(calling, 1)
    shared = coalescer.take()
    assert shared is not None
    assert not coalescer.add(soon, 1)
    assert not coalescer.add(late, 1)
    assert coalescer.earliest() == 1.0
    assert coalescer.expire(1.0, 0.1) == [soon]
    call = shared.step()
    assert isinstance(call, Call)
    assert call.on_send is not None
    call.on_send()
    assert coalescer.expire(1.1, 0.1) == [calling]
    assert isinstance(soon.result, BackendTimeout)
    assert isinstance(calling.result, OutcomeUnknown)
    assert coalescer.earliest() == 5.0


def test_who_leaves_before_the_call_is_sent_takes_its_item_away() -> None:
    coalescer = Coalescer(Storing())
    leaves, stays = caller_of(0), caller_of(2)
    coalescer.add(leaves, 1)
    coalescer.add(stays, 1)
    shared = coalescer.take()
    assert shared is not None
    call = shared.step()
    assert isinstance(call, Call)
    assert call.on_send is not None
    assert coalescer.give_up(leaves)
    assert isinstance(leaves.result, BackendTimeout)
    with pytest.raises(Withdrawn) as withdrawn:
        call.on_send()
    shared.answer(withdrawn.value)
    again = shared.step()
    assert isinstance(again, Call)
    assert again.args[1:] == (2,)


def test_a_call_nobody_wants_any_more_is_not_made() -> None:
    coalescer = Coalescer(Storing())
    only = caller_of(0)
    coalescer.add(only, 1)
    shared = coalescer.take()
    assert shared is not None
    assert coalescer.give_up(only)
    assert shared.step() is None
    assert shared.ended


def test_each_caller_gets_an_error_of_its_own() -> None:
    error = DurabilityUnknown("written", "id")
    error.__cause__ = ValueError()
    with pytest.raises(DurabilityUnknown) as first:
        own(error)
    with pytest.raises(DurabilityUnknown) as second:
        own(error)
    assert first.value is not second.value is not error
    assert str(first.value) == "written"
    assert first.value.result == "id"
    assert first.value.__cause__ is error.__cause__
