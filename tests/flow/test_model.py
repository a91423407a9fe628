"""Sender, receiver and a bad network, in all orders of events: every state that can be reached is visited."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from shardq.flow import Fixed, Receiver, Sender


class State(NamedTuple):
    """All there is. Attempts above 2 count as 2, and a channel carries each message at most `COPIES` times at once."""

    flight: tuple[tuple[int, int], ...]
    repeats: tuple[int, ...]
    fresh: tuple[int, ...]
    known: tuple[tuple[int, int], ...]
    queue: tuple[int, ...]
    up: tuple[int, ...]
    down: tuple[int, ...]
    stored: frozenset[int]


class World:
    """The machines in one state."""

    def __init__(self, state: State, window: int, capacity: int) -> None:
        self.sender = Sender[int](Fixed(window))
        self.sender._flight = {each: (0.0, attempt) for each, attempt in state.flight}
        self.sender._repeats = OrderedDict.fromkeys(state.repeats)
        self.sender._fresh = deque(state.fresh)
        self.sender._known = dict(state.known)
        self.sender.state = self.sender._measured()
        self.receiver = Receiver[int](capacity, 10**6)
        for each in state.queue:
            self.receiver.received(each, 1)
        self.up, self.down, self.stored = [*state.up], [*state.down], {*state.stored}

    def state(self) -> State:
        """The state now."""
        sender = self.sender
        return State(
            tuple((each, min(attempt, 2)) for each, (_, attempt) in sender._flight.items()),
            tuple(sender._repeats), tuple(sender._fresh),
            tuple(sorted((each, min(attempts, 2)) for each, attempts in sender._known.items())),
            tuple(each for each, _ in self.receiver._queue),
            tuple(sorted(self.up)), tuple(sorted(self.down)), frozenset(self.stored),
        )  # fmt: skip

    def send(self, copies: int) -> None:
        """The sender sends what it may next; the network may lose it at once, if it is crowded."""
        step = self.sender.next(0.0)
        if step is not None:
            assert self.sender.in_flight <= self.sender.window
            if self.up.count(step.id) < copies:
                self.up.append(step.id)

    def arrive(self, message: int, stays: bool) -> None:
        """A message arrives; if it `stays`, a copy of it comes later."""
        if not stays:
            self.up.remove(message)
        self.receiver.received(message, 1)

    def store(self, copies: int) -> None:
        """The storage takes a message and acks it."""
        message = self.receiver.want_more()
        if message is not None:
            self.stored.add(message)
            if self.down.count(message) < copies:
                self.down.append(message)

    def ack(self, message: int, stays: bool) -> None:
        """An ack arrives."""
        if not stays:
            self.down.remove(message)
        self.sender.ack_received(message, 0.0)


def events(state: State, copies: int) -> Iterator[Callable[[World], object]]:
    """All that may happen next."""
    yield lambda world: world.send(copies)
    yield lambda world: world.store(copies)
    yield lambda world: world.sender.lost(0.0)
    for each in {*state.up}:
        for stays in (False, True):
            yield lambda world, each=each, stays=stays: world.arrive(each, stays)  # type: ignore[misc]
        yield lambda world, each=each: world.up.remove(each)  # type: ignore[misc]
    for each in {*state.down}:
        for stays in (False, True):
            yield lambda world, each=each, stays=stays: world.ack(each, stays)  # type: ignore[misc]
        yield lambda world, each=each: world.down.remove(each)  # type: ignore[misc]
    for each, attempt in state.flight:
        yield lambda world, each=each, attempt=attempt: world.sender.timeout(each, attempt, 0.0)  # type: ignore[misc]


def explored(messages: int, window: int, capacity: int, copies: int) -> dict[State, list[State]]:
    """Each state that can be reached, with the states before it."""
    everyone = frozenset(range(messages))
    fresh = tuple(range(messages))
    first = State((), (), fresh, tuple((each, 0) for each in fresh), (), (), (), frozenset())
    before: dict[State, list[State]] = {first: []}
    open_states = deque([first])
    while open_states:
        state = open_states.popleft()
        for event in events(state, copies):
            world = World(state, window, capacity)
            event(world)
            after = world.state()
            known = {each for each, _ in after.known}
            assert everyone - known <= after.stored  # nothing is forgotten before it is stored
            ids = [*(each for each, _ in after.flight), *after.repeats, *after.fresh]
            assert sorted(ids) == sorted(known)  # each is in one place
            assert len(after.queue) <= capacity
            if after not in before:
                before[after] = []
                open_states.append(after)
            before[after].append(state)
    return before


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize(("messages", "window", "capacity", "copies"), [(2, 2, 1, 2), (2, 1, 2, 2), (3, 2, 1, 1)])
def test_nothing_is_lost_and_nothing_is_stuck(
    record_property: Callable[[str, object], None], messages: int, window: int, capacity: int, copies: int
) -> None:
    before = explored(messages, window, capacity, copies)
    done = [state for state in before if not state.known]
    reached, open_states = {*done}, deque(done)
    while open_states:
        for state in before[open_states.popleft()]:
            if state not in reached:
                reached.add(state)
                open_states.append(state)
    assert done
    assert reached == {*before}  # from everywhere the end can be reached
    record_property("note", f"flow: {len(before):,} states of {messages} messages, window {window}, queue {capacity}")
