"""What a queue's streams hold while tenants flood, and how soon reads reach each. Needs numpy.

Reads go round the streams that hold something, and take one message of each. So a message waits for the rest of the
round, also in a stream that was empty; behind others in its stream it waits for as many rounds more.

Without an admission window a flood lies in the streams of its shard as its writes left it there, each in the shortest.
With one, a flood has few messages in the streams. Whenever one is delivered, the next is let in: to the stream that was
just read, if that is empty now, else to the shortest of the shard (`lua/modules/admission.lua`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

LOOKS: Final = 4
"""At how many moments the streams are looked at; each tenant writes its message at one of them."""

SETTLED: Final = 6
"""After how many rounds the messages of floods have found the streams where they stay."""

WRITES: Final = 20_000
"""How many writes stand for those of all floods, at most 64 for each."""

Shards = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Look:
    """The streams at one moment: what each holds, and how many deliveries come before that of a message put there."""

    lengths: NDArray[np.float64]
    before: NDArray[np.float64]


def poured(shards: Shards, streams: int, flood: int) -> NDArray[np.float64]:
    """What each stream holds when each of the *shards* was written *flood* messages, all at the same rate."""
    times = max(1, min(flood, 64, WRITES // max(1, len(shards))))
    lengths = [0] * streams
    for _ in range(times):
        for shard in shards:
            lengths[min(shard, key=lengths.__getitem__)] += 1
    return np.array(lengths) * (flood / times)


def waiting_looks(lengths: NDArray[np.float64], dice: np.random.Generator, looks: int = LOOKS) -> list[Look]:
    """Look at streams that only reads change, each time after the read of a random one of those that hold something."""
    starts = dice.choice(np.flatnonzero(lengths), looks)
    return [Look(lengths, waiting(lengths, int(start))) for start in starts]


def waiting(lengths: NDArray[np.float64], start: int) -> NDArray[np.float64]:
    """For each stream, how many deliveries come before that of a message at its end, if *start* was read last."""
    busy, places = np.flatnonzero(lengths), np.arange(len(lengths))
    ahead = (busy[:, None] - start - 1) % len(lengths) < (places - start - 1) % len(lengths)
    longer = lengths[busy, None] > lengths  # which have a message in the round that reaches this one
    before: NDArray[np.float64] = deliveries_before(lengths) + (ahead & longer).sum(axis=0)
    return before


def deliveries_before(held: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each stream, how many deliveries there are in the rounds before the one that reaches a message at its end."""
    order = np.argsort(held)
    rising = held[order]
    before = np.cumsum(rising) + rising * (len(held) - 1 - np.arange(len(held)))
    found = np.empty_like(before)
    found[order] = before
    return found


def admitting_looks(
    shards: Shards, streams: int, admitted: int, dice: np.random.Generator, looks: int = LOOKS
) -> list[Look]:
    """Looks at streams in which each of the *shards* always has *admitted* messages, one in each round."""
    turns = Turns(shards, streams, admitted)
    for _ in range(SETTLED):
        turns.round()
    taken = [turns.round(look=float(share)) for share in dice.random(looks)]
    for _ in range(max(map(max, (lengths for _, lengths in taken))) + 1):
        turns.round()
    total = np.array(list(accumulate(turns.served)))
    found = []
    for at, lengths in taken:
        held = np.array(lengths)
        passed = at + 1 + (np.arange(streams) - at - 1) % streams + held * streams  # which pass takes the message
        found.append(Look(held.astype(float), (total[passed - 1] - total[at]).astype(float)))
    return found


class Turns:
    """A queue with an admission window that is read round after round.

    `served` has a 1 for each pass of a stream that held something, and a 0 for each other.
    """

    def __init__(self, shards: Shards, streams: int, admitted: int) -> None:
        self.served: list[int] = []
        self._lengths = [0] * streams
        self._streams: list[deque[Sequence[int]]] = [deque() for _ in range(streams)]
        for _ in range(admitted):
            for shard in shards:
                self._put(min(shard, key=self._lengths.__getitem__), shard)

    def round(self, look: float = 0.0) -> tuple[int, list[int]]:
        """Read a round; return its pass at the share *look* of the deliveries, and what the streams held after it."""
        busy = [number for number, stream in enumerate(self._streams) if stream]
        wanted, found = busy[int(look * len(busy))], (0, self._lengths)
        for number, stream in enumerate(self._streams):
            self.served.append(1 if stream else 0)
            if stream:
                self._deliver(number, stream)
            if number == wanted:
                found = len(self.served) - 1, self._lengths.copy()
        return found

    def _deliver(self, number: int, stream: deque[Sequence[int]]) -> None:
        shard = stream.popleft()
        self._lengths[number] -= 1
        self._put(min(shard, key=self._lengths.__getitem__) if stream else number, shard)

    def _put(self, number: int, shard: Sequence[int]) -> None:
        self._streams[number].append(shard)
        self._lengths[number] += 1
