"""The window of a writer: which messages are under way, and who waits for a place. It does no I/O.

It is `flow`'s sender, with a bound for bytes. A message without a place stays with its caller, who waits: so a writer
holds no more than the window, however much its callers want to write.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock

from shardq.flow import Limit, Sender


class Place:
    """A message's place in the window: its *weight* in bytes, whether it is `given`, and who is woken when it is."""

    __slots__ = ("given", "wake", "weight")

    def __init__(self, weight: int) -> None:
        self.weight, self.given = weight, False
        self.wake: Callable[[], object] | None = None


class Window:
    """The places of a writer's messages, at most *most_bytes* of them and as many as *limit* says.

    A message that is larger than *most_bytes* has a place when it is alone. Threads share it. Times are seconds of one
    monotonic clock. `accepted` counts the places that were given.
    """

    def __init__(self, limit: Limit, most_bytes: int) -> None:
        self._sender: Sender[Place] = Sender(limit)
        self._most_bytes, self._bytes = most_bytes, 0
        self.accepted = 0
        self._waiting: deque[Place] = deque()
        self._flushes: list[tuple[set[Place], Callable[[], object]]] = []
        self._lock = Lock()

    def __len__(self) -> int:
        """How many messages have a place."""
        return len(self._sender)

    @property
    def size(self) -> int:
        """How many messages may have a place now."""
        return self._sender.window

    def enter(self, place: Place, now: float) -> bool:
        """Give *place* now if there is room, else later. First come, first served."""
        with self._lock:
            # Behind those that wait, though it may fit: otherwise small messages would pass a large one for ever.
            if self._waiting or not self._has_room(place):
                self._waiting.append(place)
                return False
            self._give(place, now)
            return True

    def must_wait(self, place: Place, wake: Callable[[], object]) -> bool:
        """Return False if *place* has been given; else `wake` is called once it is."""
        with self._lock:
            place.wake = wake
            return not place.given

    def give_up(self, place: Place, now: float) -> bool:
        """Let *place* wait no longer. Return False if it has been given."""
        with self._lock:
            if place.given:
                return False
            self._waiting.remove(place)
            woken = self._let_in(now)
        _wake(woken)
        return True

    def free(self, place: Place, now: float, *, answered: bool | None) -> None:
        """Take a place back. Redis has *answered*, or not in time; None if the message was never sent."""
        with self._lock:
            if answered:
                self._sender.ack_received(place, now)
            elif answered is not None:
                self._sender.timeout(place, 1, now)
            self._sender.drop(place)
            self._bytes -= place.weight
            woken = self._let_in(now)
            if self._flushes:
                woken += self._flushed(place)
        _wake(woken)

    def flush(self, wake: Callable[[], object]) -> bool:
        """Return whether no message has a place. Otherwise, wake when all that have one now have their outcome."""
        with self._lock:
            if len(self._sender):
                self._flushes.append((set(self._sender), wake))
            return not len(self._sender)

    def _has_room(self, place: Place) -> bool:
        if not self._sender.credit:
            return False
        return self._bytes + place.weight <= self._most_bytes or not len(self._sender)

    def _give(self, place: Place, now: float) -> None:
        place.given = True
        self.accepted += 1
        self._bytes += place.weight
        self._sender.send(place)
        self._sender.next(now)

    def _let_in(self, now: float) -> list[Callable[[], object]]:
        woken: list[Callable[[], object]] = []
        while self._waiting and self._has_room(self._waiting[0]):
            place = self._waiting.popleft()
            self._give(place, now)
            if place.wake is not None:
                woken.append(place.wake)
        return woken

    def _flushed(self, place: Place) -> list[Callable[[], object]]:
        for left, _ in self._flushes:
            left.discard(place)
        ended = [wake for left, wake in self._flushes if not left]
        self._flushes = [each for each in self._flushes if each[0]]
        return ended


def _wake(woken: list[Callable[[], object]]) -> None:
    for wake in woken:
        wake()
