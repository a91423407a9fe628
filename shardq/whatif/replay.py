"""A replay: the arrivals of a history, and workers, moment by moment on the clock of a private server."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from contextlib import closing
from functools import partial
from itertools import count
from random import Random
from typing import Final, TypeAlias

import msgspec

from shardq.client import Queue
from shardq.model import Received
from shardq.whatif.alternative import Alternative
from shardq.whatif.controls import ReplayControls, first_settings
from shardq.whatif.crew import Crew
from shardq.whatif.history import Arrival, History, HistoryChange, Stay
from shardq.whatif.server import MovedClock, MovedServer
from shardq.worker.outcome import ACK, Outcome
from shardq.worker.state import WorkerState

MAX_DELIVERIES: Final = 1_000_000
"""The most that a queue takes: a replay itself knows which try is the last."""

SEED: Final = 0
"""The seed with which a replay draws, unless it is given another one."""

PATIENCE: Final = 10.0
"""How many times as long as the history a replay may take by its own clock. Jobs that are left then are never done."""

Event: TypeAlias = Callable[[], object]


class Ran(msgspec.Struct):
    """The fate of a job in a replay: when it was first delivered and done, None if it was not."""

    first_at: float | None = None
    done_at: float | None = None


class Replayed(msgspec.Struct, frozen=True):
    """A replay of a history: the fate of each arrival, by its index, and what was paid.

    `ended` is when the last job was done. `slot_seconds` are those of all workers until the end of the history, or
    until the replay was done if that is later.
    """

    jobs: list[Ran]
    ended: float
    slot_seconds: float


def replayed(history: History, alternative: Alternative, server: MovedServer, seed: int = SEED) -> Replayed:
    """Replay *history* as it was, but for what *alternative* says.

    A queue draws which reads serve those who wait for a turn (lua/read.lua). Here that comes from *seed*, so that the
    same replay ends the same each time, and two settings differ by what they set only.
    """
    client, clock = server.emptied(history.begin)
    with closing(client):
        settings = {**first_settings(history, alternative), "max_deliveries": MAX_DELIVERIES}
        queue = client.queue(history.queue, **settings)
        queue.state.draw = Random(seed).randbytes
        return _Replay(history, alternative, queue, clock).run()


class _Replay:
    """The moments of one replay, and what it knows of its jobs. It is the ledger of its crew."""

    def __init__(self, history: History, alternative: Alternative, queue: Queue, clock: MovedClock) -> None:
        self._history, self._alternative, self._queue, self._clock = history, alternative, queue, clock
        self._controls = ReplayControls(queue, alternative)
        self._crew = Crew(queue, self._at, self)
        self._events: list[tuple[float, int, Event]] = []
        self._order = count()
        self._jobs = [Ran() for _ in history.arrivals]
        self._tried = [0] * len(history.arrivals)
        self._numbers: dict[str, int] = {}  # of the arrivals, by the ids of their messages
        self._is_out: set[str] = set()  # the messages that are in flight
        self._open = len(history.arrivals)
        self._paid = 0.0

    def run(self) -> Replayed:
        """Run it to its end."""
        history = self._history
        self._queue.declare()
        self._controls.begin()
        for change in history.changes:
            self._at(max(0.0, change.at - history.begin), partial(self._change, change))
        for number, arrival in enumerate(history.arrivals):
            self._at(arrival.at - history.begin, partial(self._arrive, number, arrival))
        ended = self._work(self._man())
        return Replayed(self._jobs, ended, self._paid)

    def _work(self, stays: list[tuple[int, float, float]]) -> float:
        history, last = self._history, 0.0
        latest = PATIENCE * max(1.0, history.end - history.begin)
        while self._open:
            at = min(self._events[0][0] if self._events else math.inf, self._crew.look_at)
            if at > latest:
                break
            self._clock.move_to(at)
            while self._events and self._events[0][0] <= at:
                heapq.heappop(self._events)[2]()
            self._crew.serve(at)
            last = at
        end = max(history.end - history.begin, last)
        self._paid = sum(slots * max(0.0, min(until, end) - begin) for slots, begin, until in stays)
        return history.begin + last

    def _man(self) -> list[tuple[int, float, float]]:
        """Let the workers come and go. Return for each its slots, and when it is there."""
        history, alternative = self._history, self._alternative
        slots = alternative.slots
        if alternative.workers is not None:
            stays = [Stay(slots or history.slots, None, None)] * alternative.workers
        else:
            stays = [Stay(slots or each.slots, each.begin, each.end) for each in history.stays]
        found = []
        for stay in stays:
            begin = 0.0 if stay.begin is None else max(0.0, stay.begin - history.begin)
            end = math.inf if stay.end is None else stay.end - history.begin
            if end > begin:
                self._at(begin, partial(self._join, stay.slots, end))
                found.append((stay.slots, begin, end))
        return found

    def _join(self, slots: int, end: float) -> None:
        worker = self._crew.join(slots, self._alternative.read_ahead)
        if end != math.inf:
            self._at(end, partial(self._leave, worker))

    def _leave(self, worker: WorkerState) -> None:
        self._crew.leave(worker)
        self._crew.stir()

    def _change(self, change: HistoryChange) -> None:
        self._controls.apply(change)
        self._crew.stir()

    def _arrive(self, number: int, arrival: Arrival) -> None:
        message_id = self._queue.write(b"", shard_key=arrival.shard_key, delay=arrival.delay or None)
        self._numbers[message_id] = number
        if arrival.cancelled_at is not None:
            self._at(arrival.cancelled_at - self._history.begin, partial(self._cancel, message_id, number))
        self._crew.stir()

    def _cancel(self, message_id: str, number: int) -> None:
        if self._jobs[number].first_at is None:
            self._queue.cancel(message_id)
            self._open -= 1
            self._numbers.pop(message_id)

    def _at(self, moment: float, event: Event) -> None:
        """Let *event* happen at a moment of the local clock, which begins at 0 with the history."""
        heapq.heappush(self._events, (moment, next(self._order), event))

    # --- the ledger -------------------------------------------------------------------------------------------------

    def delivered(self, received: Received) -> None:
        """A message was delivered."""
        job = self._jobs[self._numbers[received.message_id]]
        self._is_out.add(received.message_id)
        if job.first_at is None:
            job.first_at = self._clock.wall()

    def returned(self, received: Received) -> None:
        """Nobody began it: it was given back at once."""
        self._is_out.discard(received.message_id)

    def begins(self, received: Received) -> float:
        """Return for how many seconds the handler of a message runs that begins now."""
        number = self._numbers[received.message_id]
        return self._history.arrivals[number].tries[self._tried[number]].ran

    def ends(self, received: Received) -> Outcome:
        """Return what becomes of a message whose handler ends now."""
        number = self._numbers[received.message_id]
        tries = self._history.arrivals[number].tries
        tried = tries[self._tried[number]]
        self._tried[number] += 1
        self._is_out.discard(received.message_id)
        if self._tried[number] < len(tries):
            return Outcome("nack", tried.delay, "failed")
        self._jobs[number].done_at = self._clock.wall()
        self._open -= 1
        del self._numbers[received.message_id]
        return ACK

    def waits(self) -> bool:
        """Whether any message may wait in the queue."""
        return len(self._numbers) > len(self._is_out)
