"""Histories of concurrent operations on a trie, and whether some order of them explains what each returned.

An operation is recorded with the times before its call and after it. A history is linearizable (Herlihy and Wing,
TOPLAS 1990) if the operations can be put in an order that keeps every two that did not overlap as they were, and in
which each returns what the sequential specification says. The search is Wing and Gong's with Lowe's memory of states.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from tests.routing.naive import naive_match

State = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Done:
    """One operation: what, with what, what it returned, and when, in ticks of one counter."""

    verb: str
    args: tuple[str, ...]
    result: Any
    began: int
    ended: int


def stepped(state: State, done: Done) -> State | None:
    """The state after *done*, None if it cannot have returned what it did in *state*."""
    if done.verb == "lookup":
        found = {value for pattern, value in state if naive_match(pattern, done.args[0])}
        return state if found == done.result else None
    if done.verb == "has_interest":
        return state if any(naive_match(pattern, done.args[0]) for pattern, _ in state) is done.result else None
    if done.verb == "snapshot":
        return state if state == done.result else None
    pair = (done.args[0], done.args[1])
    after = state | {pair} if done.verb == "insert" else state - {pair}
    return after if done.result is (after != state) else None


def linearizable(history: Sequence[Done], start: State = frozenset()) -> bool:
    """Whether *history* is, from *start* on."""
    everything = (1 << len(history)) - 1
    todo, known = [(0, start)], {(0, start)}
    while todo:
        taken, state = todo.pop()
        if taken == everything:
            return True
        left = [at for at in range(len(history)) if not taken >> at & 1]
        first_end = min(history[at].ended for at in left)
        for at in left:
            if history[at].began > first_end:
                continue
            after = stepped(state, history[at])
            if after is not None and (taken | 1 << at, after) not in known:
                known.add((taken | 1 << at, after))
                todo.append((taken | 1 << at, after))
    return False


class Recorder:
    """Runs scripts of operations on threads, and keeps what they did."""

    def __init__(self, perform: Callable[[str, tuple[str, ...]], Any]) -> None:
        self._perform = perform
        self._tick = count()

    def run(self, scripts: list[list[tuple[str, tuple[str, ...]]]]) -> list[Done]:
        """Each script on a thread of its own, all at once; the history."""
        gate, history = threading.Barrier(len(scripts)), list[Done]()

        def play(script: list[tuple[str, tuple[str, ...]]]) -> None:
            gate.wait()
            for verb, args in script:
                began = next(self._tick)
                result = self._perform(verb, args)
                history.append(Done(verb, args, result, began, next(self._tick)))

        threads = [threading.Thread(target=play, args=(script,)) for script in scripts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return history
