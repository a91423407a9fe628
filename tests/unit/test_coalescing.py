"""Callers of one line, driven by hand in any order: a naive server counts what was stored, and each caller is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shardq.errors import BackendTimeout, DurabilityUnknown, OutcomeUnknown, QueueFull
from shardq.ops.coalescing import Entry, Line, Phase, SharedCall, Verb, own
from shardq.ops.steps import Call, Op, Refused, Unanswered
from shardq.protocol.scripts import load

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
        self.line = Line(self.verb)
        self.server = Server()
        self.entries: list[Entry[int, int]] = []
        self.gone: set[int] = set()
        self.active: dict[SharedCall[int, int], Entry[int, int]] = {}

    def of(self, *phases: Phase) -> list[Entry[int, int]]:
        return [entry for entry in self.entries if entry.phase in phases]

    @rule(until=st.integers(1, 100))
    def come(self, until: int) -> None:
        entry: Entry[int, int] = Entry(len(self.entries), until, lambda: None)
        self.entries.append(entry)
        self.line.join(entry, 1)

    @precondition(lambda self: self.of(Phase.LEADING))
    @rule(data=st.data())
    def lead(self, data: st.DataObject) -> None:
        leader = data.draw(st.sampled_from(self.of(Phase.LEADING)))
        shared = self.line.lead(leader)
        self.active[shared] = leader
        assert leader in shared.entries
        assert len(shared.entries) <= 4
        assert len({entry.item % 2 for entry in shared.entries}) == 1

    @precondition(lambda self: self.of(Phase.WAITING))
    @rule(data=st.data())
    def step_forward(self, data: st.DataObject) -> None:
        self.line.step_forward(data.draw(st.sampled_from(self.of(Phase.WAITING))), MOST)

    @precondition(lambda self: self.active)
    @rule(data=st.data(), ends=st.sampled_from(["answered", "lost", "unheard", "unsent", "refused"]))
    def make_a_try(self, data: st.DataObject, ends: str) -> None:
        shared = data.draw(st.sampled_from(list(self.active)))
        call = shared.step()
        if call is None:
            self.end(shared)
            return
        assert isinstance(call, Call)
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

    @precondition(lambda self: self.of(Phase.WAITING, Phase.RIDING))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """A caller's time is up, or it was cancelled. A leader who leaves hands its call over."""
        entry = data.draw(st.sampled_from(self.of(Phase.WAITING, Phase.RIDING)))
        assert self.line.give_up(entry)
        self.gone.add(entry.item)
        led = next((shared for shared, leader in self.active.items() if leader is entry), None)
        if led is not None:
            del self.active[led]
            if led.heir() is None:
                assert led.step() is None
                self.line.leave()

    @precondition(lambda self: self.of(Phase.LEADING))
    @rule(data=st.data())
    def leave_when_appointed(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.of(Phase.LEADING)))
        assert not self.line.give_up(entry)
        self.active[self.line.lead(entry)] = entry
        assert self.line.give_up(entry)
        self.gone.add(entry.item)
        shared = next(shared for shared, leader in self.active.items() if leader is entry)
        del self.active[shared]
        if shared.heir() is None:
            assert shared.step() is None
            self.line.leave()

    def end(self, shared: SharedCall[int, int]) -> None:
        assert shared.ended
        del self.active[shared]
        self.line.leave()

    @invariant()
    def everybody_is_told_the_truth(self) -> None:
        stored = Counter(self.server.stored)
        assert not stored or max(stored.values()) == 1
        for entry in self.of(Phase.ENDED):
            match entry.result:
                case int():
                    assert entry.result == entry.item
                    assert stored[entry.item] == 1
                case OutcomeUnknown():
                    assert entry.item in self.gone
                case BackendTimeout():
                    assert entry.item in self.gone
                    assert not stored[entry.item]
                case _:
                    pytest.fail(f"told {entry.result}")

    @invariant()
    def somebody_leads_where_somebody_waits(self) -> None:
        leading = len(self.of(Phase.LEADING)) + len(self.active)
        assert self.line.calls == leading <= MOST
        assert leading or not self.of(Phase.WAITING)

    def teardown(self) -> None:
        for _ in range(10_000):
            if not self.of(Phase.LEADING) and not self.active:
                break
            for entry in self.of(Phase.LEADING):
                self.active[self.line.lead(entry)] = entry
            for shared in list(self.active):
                call = shared.step()
                if call is not None:
                    is_open = isinstance(call, Call) and call.script.name == "open"
                    shared.answer([b"OK"] if is_open else self.server.execute(call))  # type: ignore[arg-type]
                if shared.ended:
                    self.end(shared)
        assert all(entry.phase is Phase.ENDED for entry in self.entries)
        assert self.verb.held == 0
        assert not self.line.shared
        self.everybody_is_told_the_truth()


Callers.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestCallers = Callers.TestCase


def entry_of(item: int, until: float = 10.0) -> Entry[int, int]:
    return Entry(item, until, lambda: None)


def test_a_caller_that_is_alone_waits_for_nothing() -> None:
    line = Line(Storing())
    assert line.enter()
    assert not line.enter()
    line.leave()
    assert line.enter()


def test_those_who_wait_ride_in_the_order_in_which_they_came() -> None:
    line = Line(Storing())
    assert line.enter()
    waiting = [entry_of(item) for item in (0, 2, 1, 4, 6, 8)]
    assert [line.join(entry, 1) for entry in waiting] == [False] * 6
    line.leave()
    assert waiting[0].phase is Phase.LEADING
    assert [entry.item for entry in line.lead(waiting[0]).entries] == [0, 2, 4, 6]
    line.leave()
    assert [entry.item for entry in line.lead(waiting[2]).entries] == [1]
    line.leave()
    assert [entry.item for entry in line.lead(waiting[5]).entries] == [8]


def test_a_call_has_no_more_than_it_may_weigh() -> None:
    line = Line(Storing())
    line.verb.bounds = lambda: (100, 150)  # type: ignore[method-assign]
    line.enter()
    waiting = [entry_of(item) for item in (70, 70, 70)]
    for entry in waiting:
        line.join(entry, 1)
    line.leave()
    assert len(line.lead(waiting[0]).entries) == 2


def test_somebody_who_waits_in_a_task_is_ended_at_the_time() -> None:
    line = Line(Storing())
    soon, late, rides = entry_of(0, 1.0), entry_of(2, 5.0), entry_of(4, 1.0)
    assert line.add(rides, 1)
    shared = line.take()
    assert shared is not None
    assert not line.add(soon, 1)
    assert not line.add(late, 1)
    assert line.earliest() == 1.0
    assert line.expire(1.0, 0.1) == [soon]
    assert isinstance(shared.step(), Call)
    assert line.expire(1.1, 0.1) == [rides]
    assert isinstance(soon.result, BackendTimeout)
    assert isinstance(rides.result, OutcomeUnknown)
    assert line.earliest() == 5.0


def test_a_call_nobody_wants_any_more_is_not_made() -> None:
    line = Line(Storing())
    only = entry_of(0)
    line.add(only, 1)
    shared = line.take()
    assert shared is not None
    assert line.give_up(only)
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
