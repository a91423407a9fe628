"""Turns: which partitions a client reads next, and how many messages of each. Pure, soft, of one client and queue.

It is the engine's own rule one level up. What a partition has to give is its weight: its quiet messages, of tenants
ahead of whom nobody is, and its turns, the shard keys that wait for one, each as often as its weight says. A read is
dealt message by message:

- to a partition with quiet messages first, but for one of eight;
- else to one of those within one message of the fewest in flight for their weight; of these, to the one that was served
  least for its weight (`tag`). (By strict order, the partition that rounding favours would keep its handler for ever.)

Nothing here is believed for long: who has read elsewhere for a while looks again (`to_glance`). Whatever it says, a
read that finds nothing asks all partitions before it says so.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from typing import Final

MEAN_WORK: Final = 0.001
"""Seconds that the work on a message counts as beside the time that it took."""

BESIDE_QUIET: Final = 8
"""Of so many messages, one is not of those ahead of whom nobody is: these, without end, must not starve the others."""

FRESH: Final = 0.010
"""Seconds for which a partition need not be looked at after it was heard."""

LOOK_AFTER: Final = 0.020
"""Seconds in which somebody read elsewhere, after which a reader looks at the partitions of which it has not heard."""

LOOK_AFTER_MESSAGES: Final = 16
"""So many messages in the place of that time."""

STAYS: Final = 8
"""So many messages in a row a reader may get where it acks."""


class Turn:
    """What is known of one partition. All times are seconds of the local clock."""

    __slots__ = ("flight", "heard_at", "quiet", "tag", "turns")

    def __init__(self) -> None:
        self.quiet = self.turns = self.flight = 0
        self.tag = 0.0
        self.heard_at = -math.inf

    @property
    def weight(self) -> int:
        """What it has to give: 0 if nothing is known of any."""
        return self.quiet + self.turns


class Turns:
    """Whose turn it is of so many partitions. *now* is the local clock. Not safe across threads: a client locks it.

    What was known *before* of partitions that are *kept* is known of them still.

    >>> turns = Turns(2, lambda: 0.0)
    >>> turns.heard(1, quiet=3, waiting=0)
    >>> turns.deal(2)
    {1: 2}
    """

    def __init__(
        self, partitions: int, now: Callable[[], float], before: Turns | None = None, kept: Sequence[bool] = ()
    ) -> None:
        self._now = now
        known = before._turns if before else []
        self._turns: list[Turn] = [known[at] if any(kept[at : at + 1]) else Turn() for at in range(partitions)]
        # The tag of the partition that was served last: who comes anew begins there.
        self._served: float = before._served if before else 0.0
        self._dealt = 0  # messages, to tell one of eight
        self._stayed = 0  # messages that were dealt in a row where a reader acked
        self._since_look = 0  # messages that were dealt since a look
        self._looked_at = -math.inf
        self.out: frozenset[int] = frozenset()  # partitions that are left out of reads for now
        self._dropped: deque[Turn] = before._dropped if before else deque()  # one for each message that was dropped

    def deal(self, count: int, stay: int | None = None, among: Collection[int] | None = None) -> dict[int, int]:
        """Return how many messages to read of which partition, *count* at most; {} if nothing is known of any.

        What is dealt counts as in flight until `settled` or `left` says otherwise. A reader of one message may *stay*
        in the partition that it acks, since both take one call then; not for long, and not beside quiet messages.
        *among* says of which partitions a reader wants the rest, who has some; by default, of any. Then one that wants
        more than is known asks for that wherever something is, or has not been looked for of late.
        """
        while self._dropped:
            turn = self._dropped.popleft()
            turn.flight = max(0, turn.flight - 1)
        found: Counter[int] = Counter()
        if stay is not None and self._may_stay(stay):
            found[stay] = 1
            self._turns[stay].flight += 1
            self._dealt += 1
            self._since_look += 1
            return found
        left = [
            [turn.quiet, turn.turns] if (among is None or at in among) and at not in self.out else [0, 0]
            for at, turn in enumerate(self._turns)
        ]
        for _ in range(count):
            at = self._next(left)
            if at is None:
                break
            found[at] += 1
            self._turns[at].flight += 1
            self._dealt += 1
            # Of a tenant that waits for a turn more may wait behind: its turn stays.
            if left[at][0]:
                left[at][0] -= 1
        if among is None and found.total() < count:
            self._deal_rest(found, count - found.total())
        self._since_look += found.total()
        return dict(found)

    def heard(self, partition: int, quiet: int, waiting: int) -> None:
        """Note what a read or a glance told: *quiet* messages, and the weights of those that are *waiting*."""
        turn = self._of(partition)
        if not turn.weight and quiet + waiting:
            # It was away: it has no claim on what the others were served meanwhile.
            turn.tag = max(turn.tag, self._served)
        turn.quiet, turn.turns, turn.heard_at = quiet, waiting, self._now()

    def is_empty(self, partition: int) -> None:
        """Note that a read found nothing there, whatever it has: limits may let none through."""
        turn = self._of(partition)
        turn.quiet, turn.turns, turn.heard_at = 0, 0, self._now()

    def taken(self, partition: int, count: int) -> None:
        """Note that *count* messages came without being dealt, such as to somebody who waited."""
        self._of(partition).flight += count

    def left(self, partition: int, count: int) -> None:
        """Note that *count* of the messages that were dealt did not come, or go back."""
        turn = self._of(partition)
        turn.flight = max(0, turn.flight - count)

    def dropped(self, partition: int) -> None:
        """Note that nobody holds a message any more. The next deal counts that.

        It is safe without the lock: a collection of garbage says so, which may run in a thread that holds that.
        """
        self._dropped.append(self._of(partition))

    def settled(self, partition: int, took: float, count: int = 1) -> None:
        """Note that *count* messages were settled, the work on which took *took* seconds together."""
        turn = self._of(partition)
        turn.flight = max(0, turn.flight - count)
        turn.tag += (count * MEAN_WORK + max(0.0, took)) / max(1, turn.weight)
        self._served = max(self._served, turn.tag)

    def to_glance(self) -> list[int]:
        """Return which partitions a reader is to look at before it reads; mostly none. They count as looked at."""
        now = self._now()
        if self._since_look < LOOK_AFTER_MESSAGES and now - self._looked_at < LOOK_AFTER:
            return []
        self._since_look, self._looked_at = 0, now
        return self.unheard(now - FRESH)

    def unheard(self, since: float) -> list[int]:
        """Return the partitions of which nothing was heard at local time *since* or later, but those left out."""
        return [at for at, turn in enumerate(self._turns) if turn.heard_at < since and at not in self.out]

    def forget(self, partition: int) -> None:
        """Note that what was heard of a partition may not hold any more: it is to be looked at."""
        self._of(partition).heard_at = -math.inf

    def _of(self, partition: int) -> Turn:
        """Return what is known of a partition. What is told of one that has left counts for nothing."""
        return self._turns[partition] if partition < len(self._turns) else Turn()

    def _may_stay(self, partition: int) -> bool:
        """Return whether the next message may be of this partition again."""
        others = any(turn.quiet for at, turn in enumerate(self._turns) if at != partition and at not in self.out)
        if others or partition in self.out or self._stayed >= STAYS or not self._of(partition).weight:
            self._stayed = 0
            return False
        self._stayed += 1
        return True

    def _deal_rest(self, found: Counter[int], count: int) -> None:
        """Deal *count* messages more, of which nobody knows whether they are there."""
        asked = [*found, *(at for at in self.unheard(self._now() - FRESH) if at not in found)]
        if not asked or (not found and count < len(asked)):
            return  # to look takes less
        each, rest = divmod(count, len(asked))
        for place, at in enumerate(asked):
            if some := each + (place < rest):
                found[at] += some
                self._turns[at].flight += some

    def _next(self, left: Sequence[Sequence[int]]) -> int | None:
        """Return the partition of the next message; None if all that is known is dealt."""
        able = [at for at, (quiet, turns) in enumerate(left) if quiet + turns]
        if not able:
            return None
        if (self._dealt + 1) % BESIDE_QUIET:
            able = [at for at in able if left[at][0]] or able
        turns = self._turns
        most = min((turns[at].flight + 1) / max(1, turns[at].weight) for at in able)
        near = [at for at in able if turns[at].flight / max(1, turns[at].weight) <= most]
        return min(near, key=lambda at: (turns[at].tag + turns[at].flight * MEAN_WORK / max(1, turns[at].weight), at))
