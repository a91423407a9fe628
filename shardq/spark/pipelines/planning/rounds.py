"""What a queue's streams hold while tenants flood, and how soon reads reach each. Needs numpy.

Reads go round the streams that hold something, and take one message of each. So a message waits for the rest of the
round, also in a stream that was empty; behind others in its stream it waits for as many rounds more.

Without an admission window a flood lies in the streams of its shard as its writes left it there, each in the shortest.
With one, what a flood has waiting lies outside of the streams. Reads take what the streams hold first, and of some
deliveries one of those who wait elsewhere (`share_of_streams` in lua/read.lua).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

LOOKS: Final = 4
"""At how many moments the streams are looked at; each tenant writes its message at one of them."""

TURN: Final = 8
"""Of so many deliveries one is of those who wait outside of the streams, whatever these hold."""

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


def served_first(streams: int, dice: np.random.Generator, looks: int = LOOKS) -> list[Look]:
    """Looks at streams that no flood has anything in: reads take one of `TURN` deliveries of those that wait elsewhere.

    So before the message of a quiet tenant comes another one with the probability 1 / TURN, a second one with its
    square, and so on.
    """
    passed = (dice.geometric(1 - 1 / TURN, streams).astype(np.float64) - 1 for _ in range(looks))
    return [Look(np.zeros(streams), before) for before in passed]
