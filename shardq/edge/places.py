"""Where messages are held that the gateway does not take for now, and when it is asked again.

NO_QUEUE, NOT_ALLOWED and TOO_LARGE are states of the gateway and not of the message: a queue that comes into being, a
file of tokens that is mended, or a bound that is raised changes them. So what is refused for one of these waits at a
*place*, named by the reason and what it depends on. One message of a place goes out now and then, with growing pauses.
When it is taken, all others of the place follow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from shardq.backoff import Exponential

FINAL_REASONS: Final = frozenset({"INVALID", "NOT_DECODABLE"})
"""Reasons that lie in the message: no try will store it. Reasons that nobody knows yet are taken for the gateway's."""
TOO_LARGE: Final = "TOO_LARGE"
PAUSE: Final = Exponential(base=1.0, factor=2, cap=60.0, jitter="none")
PAUSE_SPREAD: Final = 0.2
"""The share of a pause by which it may be shorter, so that producers that were refused together come one by one."""
PLACES_AT_ONCE: Final = 16
"""Places that are asked for at a time."""


def place_of(request: Any, reason: str) -> str:
    """Return the place at which a request waits that was refused for *reason*."""
    if reason == TOO_LARGE:  # a bound that is raised a little lets out what is little above it
        return f"{reason} {len(request.plain_message).bit_length()}"
    where = f"{reason} {request.queue} {request.topic}"
    return where if reason == "NO_QUEUE" else f"{where} {request.shard_key.hex()}"


@dataclass(slots=True)
class _Place:
    due: float
    failures: int = 1
    is_asked: bool = False


class GatewayPlaces:
    """The places at which messages are held. Times are seconds of one monotonic clock."""

    def __init__(self, random: Random) -> None:
        self._places: dict[str, _Place] = {}
        self._random = random

    def __len__(self) -> int:
        return len(self._places)

    def add(self, place: str, now: float) -> None:
        """Note that a message is held at a place."""
        if place not in self._places:
            self._places[place] = _Place(now + self._pause(1))

    def start(self, places: Iterable[str], now: float) -> None:
        """Take over what is held already, and ask for all of it: the gateway may be another one."""
        for place in places:
            self._places.setdefault(place, _Place(now))
        for each in self._places.values():
            each.due, each.is_asked = now, False

    def due(self, now: float) -> list[str]:
        """Return the places for which it is time to ask. Each must get `failed` or `opened`."""
        found = [name for name, each in self._places.items() if each.due <= now and not each.is_asked][:PLACES_AT_ONCE]
        for name in found:
            self._places[name].is_asked = True
        return found

    def failed(self, place: str, now: float) -> None:
        """Note that the message that was to ask for a place was not taken."""
        if found := self._places.get(place):
            found.failures, found.is_asked = found.failures + 1, False
            found.due = now + self._pause(found.failures)

    def opened(self, place: str) -> None:
        """Forget a place: the messages that were held there go out again."""
        self._places.pop(place, None)

    def raised(self, now: float) -> None:
        """Ask again for messages that were too large: the bound has changed."""
        for name, each in self._places.items():
            if name.startswith(TOO_LARGE):
                each.due = now

    def _pause(self, failures: int) -> float:
        return PAUSE(failures, self._random) * (1 - PAUSE_SPREAD * self._random.random())
