"""What an agent can be asked to do, and how its calls are timed. Needs nothing but Python: it runs anywhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.traffic import traffic


@dataclass(frozen=True, slots=True)
class Given:
    """What an agent is told: the server, the name of its queue, and the amounts of `benchmarks.settings`.

    A turn handles so many `messages`; `waiting` ones lie in the queue all the time.
    """

    url: str
    name: str
    messages: int
    batch: int
    payload: int
    streams: int
    per_shard: int
    tenants: int
    seed: int
    waiting: int = 0

    def traffic(self, messages: int = 0) -> list[tuple[bytes, str]]:
        """Payloads and shard keys of so many messages; of a turn's by default."""
        return traffic(messages or self.messages, self.payload, self.tenants, self.seed)


@dataclass(frozen=True, slots=True)
class Action:
    """One kind of call. Only `run` is measured; it and `finish` get what `prepare` returned.

    `run` returns how long each call took, in seconds. `messages` is how many messages it handles.
    """

    messages: int
    run: Callable[[Any], list[float]]
    prepare: Callable[[], Any] = list
    finish: Callable[[Any], Any] = lambda _: None


def one_by_one(call: Callable[[Any], Any], items: Sequence[Any]) -> list[float]:
    """Call with each item, and note the seconds of each call."""
    found: list[float] = []
    note, clock = found.append, time.perf_counter
    for item in items:
        begun = clock()
        call(item)
        note(clock() - begun)
    return found


class Crowd:
    """Threads that wait at a gate, and then share the calls. Starting them is not measured."""

    def __init__(self, threads: int, call: Callable[[Any], Any], items: Sequence[Any]) -> None:
        self.items = items
        self._gate, self._found = threading.Barrier(threads + 1), list[float]()
        shares = [items[at::threads] for at in range(threads)]
        self._threads = [threading.Thread(target=self._work, args=(call, share)) for share in shares]
        for thread in self._threads:
            thread.start()

    def _work(self, call: Callable[[Any], Any], items: Sequence[Any]) -> None:
        self._gate.wait()
        self._found.extend(one_by_one(call, items))

    def go(self) -> list[float]:
        """Open the gate, and wait for all."""
        self._gate.wait()
        for thread in self._threads:
            thread.join()
        if len(self._found) < len(self.items):
            raise RuntimeError("a call failed in a thread; it says why above")
        return self._found
