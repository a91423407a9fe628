"""Turns: which partitions a client reads next, and how many messages of each. Pure, soft, for one client and queue.

It is the engine's own rule one level up. The messages that a partition has to give are its weight: its quiet messages,
of tenants that follow nobody, and its turns, the shard keys that wait for one, each as often as its weight says. Each
read and glance tells the score of the first of these: how many messages it has in flight, and how many seconds of
service it has received, by weight. So the partitions' orders are merged into one: a read is dealt message by message

- to a partition with quiet messages first, in proportion to these;
- but one of eight, and all where nothing is quiet, to the one whose first has fewest in flight; among these, to the
  one whose first has received least.

That one of eight is counted here, over all partitions. So a read says how much of it is `due` to those that wait for a
turn: one partition alone would count one of eight of its own messages. See `share_of_streams` in lua/read.lua.

The service of each partition counts from a zero of its own. So the virtual time of one that comes is taken for as much
as the least that the others have: the `claim` of each counts from there. Each message that was asked for and is not
answered yet stands for one in flight more of another of those who wait there.

Nothing here is believed for long: a reader that has read elsewhere for a while looks again (`to_glance`), and so does
one that has settled work that took long. Whatever it says, a read that finds nothing asks all partitions before it says
so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from itertools import chain
from typing import Final, NamedTuple

from shardq.ops.read.glance import NO_SCORE

LEVEL: Final = 1 << 43
"""The factor of the messages in flight in a score; the service is added."""

TICKS: Final = 10_000
"""The units of service in a score that make a second."""

MEAN_WORK: Final = 0.001
"""Seconds of service that a message counts as, until its partition tells what it was charged."""

BESIDE_QUIET: Final = 8
"""One of this number of messages goes to those that wait for a turn: quiet ones, without end, must not starve them.

A read counts dues in such parts of a message.
"""

FRESH_SECONDS: Final = 0.010
"""Seconds for which a partition need not be looked at after it was heard."""

SURE: Final = 0.001
"""Seconds for which quiet messages that somebody saw are there for sure."""

LOOK_AFTER: Final = 0.020
"""Seconds in which somebody read elsewhere, after which a reader looks at the partitions that it has not heard of."""

LOOK_AFTER_MESSAGES: Final = 16
"""Messages in the place of that time."""

LOOK_AFTER_WORK: Final = 0.05
"""Seconds of work that was settled in the place of that time."""

GLANCES_A_MESSAGE: Final = 2
GLANCES_A_SECOND: Final = 100
"""Partitions that a client may look at before reads: for each message that it was dealt, and for each second besides.

So looks for each job are bounded, however many partitions there are. Half of them are those that were silent for
longest, so each has its turn after as many messages as there are partitions. The others are those that come next: an
order that is wrong there would be followed.
"""

MAX_BEHIND: Final = 60.0
"""One partition has no claim on more seconds of service than these, beside what a lease may hide."""

MAX_IN_A_ROW: Final = 8
"""Messages that a reader may get in a row where it acks."""


class DealtRead(NamedTuple):
    """The request to one partition: a number of `messages`, and among them `turns` of those who wait.

    `due` is how much of it is due to those who wait, in eighths of a message.
    """

    messages: int = 0
    turns: int = 0
    due: int = 0

    def and_more(self, messages: int, turns: int, due: int) -> DealtRead:
        """Return this with more."""
        return DealtRead(self.messages + messages, self.turns + turns, self.due + due)


NOTHING: Final = DealtRead()


class PartitionTurn:
    """The numbers that are known of one partition. All times are seconds of the local clock.

    Its first one that waits for a turn has `level` messages in flight for its weight. `claim` is what that one has
    received, and `base` the part of it that makes the partitions comparable; NaN while nothing is known of it. By `tag`
    its quiet messages have their turn. It was `told_at`; `heard_at` is the same as long as that may hold.
    """

    __slots__ = ("asked", "base", "claim", "heard_at", "level", "quiet", "tag", "told_at", "turns")

    def __init__(self) -> None:
        self.quiet = self.turns = self.asked = self.level = 0
        self.claim, self.base, self.tag = 0.0, math.nan, 0.0
        self.heard_at = self.told_at = -math.inf

    @property
    def weight(self) -> int:
        """Its share to give: 0 if nothing is known of any."""
        return self.quiet + self.turns

    @property
    def asked_for_turn(self) -> float:
        """How many turns were asked for, for each that somebody waits for."""
        return self.asked / max(1, self.turns)


class PartitionTurns:
    """The turns of a number of partitions. *now* is the local clock. Not safe across threads: a client locks it.

    The state known *before* of partitions that are *kept* is known still. *lease* is how many seconds of work may not
    be charged yet. *beside* is drawn out of eight: clients that read little give as much to those that wait.

    >>> turns = Turns(2, lambda: 0.0)
    >>> turns.heard(1, quiet=3, waiting=0)
    >>> turns.deal(2)
    {1: DealtRead(messages=2, turns=0, due=2)}
    """

    def __init__(
        self,
        partitions: int,
        now: Callable[[], float],
        before: PartitionTurns | None = None,
        kept: Sequence[bool] = (),
        lease: float = 0.0,
        beside: int = 0,
    ) -> None:
        self._now = now
        known = before._turns if before else []
        self._turns: list[PartitionTurn] = [
            known[at] if any(kept[at : at + 1]) else PartitionTurn() for at in range(partitions)
        ]
        self._max_behind: float = MAX_BEHIND + lease
        # The least claim of those that wait, when it was seen last: a shard key that comes again begins there.
        self._least: float = before._least if before else 0.0
        self._beside: int = before._beside if before else beside  # messages dealt beside quiet ones, modulo eight
        self._tag = max([turn.tag for turn in self._turns], default=0.0)  # that at which quiet ones were served last
        self._dealt = self._paid = 0  # messages; those for which looks were earned
        self._stayed = 0  # messages that were dealt in a row where a reader acked
        self._since_look = 0  # messages that were dealt since a look
        self._worked = 0.0  # seconds of work that was settled since
        self._looked_at = -math.inf
        self._earned_at = now()
        self._earned = float(partitions)  # how many partitions may be looked at
        self.out: frozenset[int] = frozenset()  # partitions that are left out of reads for now

    def deal(self, count: int, stay: int | None = None, among: Collection[int] | None = None) -> dict[int, DealtRead]:
        """Return what to read by partition, *count* messages at most; {} if nothing is known of any.

        Dealt messages count as asked for until they are `answered`. A reader of one message may *stay* in the partition
        that it acks, since both take one call then; not for long, and not beside quiet messages. *among* names the
        partitions from which a reader who has some wants the rest; by default, of any. Then one that wants more than
        is known asks for that wherever something is, or has not been looked for of late.
        """
        found: dict[int, DealtRead] = {}
        may_stay = stay is not None and self._may_stay(stay)
        able = [at for at in range(len(self._turns)) if (among is None or at in among) and at not in self.out]
        quiet = {at: self._turns[at].quiet for at in able if self._turns[at].quiet}
        # More messages of a tenant that waits for a turn may wait behind: its turn stays.
        waiting = [at for at in able if self._turns[at].turns]
        for _ in range(count):
            if not (quiet or waiting):
                break
            is_beside = bool(quiet and waiting)
            self._beside = (self._beside + is_beside) % BESIDE_QUIET
            if quiet and (not is_beside or self._beside):
                at = self._next_quiet(quiet)
                self._ask(found, at, DealtRead(1, 0, 0 if is_beside else 1))
            else:
                at = stay if may_stay and stay in waiting else self._next_turn(waiting)
                self._turns[at].claim += MEAN_WORK / self._turns[at].turns
                self._ask(found, at, DealtRead(1, 1, BESIDE_QUIET if is_beside else 1))
            self._dealt += 1
        if among is None and (rest := count - sum([each.messages for each in found.values()])):
            self._deal_rest(found, rest)
        self._since_look += sum([each.messages for each in found.values()])
        return found

    def heard(self, partition: int, quiet: int, waiting: int, first: int = NO_SCORE, virtual: int = 0) -> None:
        """Note what a read or a glance told: *quiet* messages, the weights of those that are *waiting* for a turn.

        *first* is the score of the first of these, if the call has looked, and *virtual* the virtual time.
        """
        turn = self._of(partition)
        is_back = not turn.turns
        turn.quiet, turn.turns = quiet, waiting
        turn.heard_at = turn.told_at = self._now()
        level, service = _in_score(first, virtual) if first != NO_SCORE else (0, virtual)
        if is_back:
            self._begin(turn, virtual / TICKS)
        if is_back or first != NO_SCORE:
            turn.level = level
            self._claim(turn, service / TICKS)

    def is_empty(self, partition: int) -> None:
        """Note that a read found nothing there, whatever it has: limits may let none through."""
        turn = self._of(partition)
        turn.quiet = turn.turns = 0
        turn.heard_at = turn.told_at = self._now()

    def answered(self, partition: int, dealt: DealtRead) -> None:
        """Note that the messages of a read have come, or will not."""
        turn = self._of(partition)
        turn.asked = max(0, turn.asked - dealt.turns)

    def settled(self, partition: int, took: float) -> None:
        """Note that a message was settled, the work on which took *took* seconds: turns change by that.

        It is taken for one of those in flight by which the first one that waits there was put behind others. If it was
        another's, that one gets a message before its turn, and the read of that tells what is true. (An ack that told
        it would take 3 % more steps, in all queues.)
        """
        turn = self._of(partition)
        turn.level = max(0, turn.level - 1)
        if took >= FRESH_SECONDS:
            self._worked += took
            self.forget(partition)

    def to_glance(self) -> list[int]:
        """Return which partitions a reader is to look at before it reads; mostly none. They count as looked at."""
        now = self._now()
        is_soon = self._since_look < LOOK_AFTER_MESSAGES and now - self._looked_at < LOOK_AFTER
        if is_soon and self._worked < LOOK_AFTER_WORK:
            return self._within_bounds(self._in_doubt(now), now)
        self._since_look, self._worked, self._looked_at = 0, 0.0, now
        return self._within_bounds(self.unheard(now - FRESH_SECONDS), now)

    def _within_bounds(self, wanted: list[int], now: float) -> list[int]:
        """Return which of the partitions that are *wanted* to look at now: all of them, if as many are earned."""
        if not wanted:
            return wanted
        earned = GLANCES_A_SECOND * (now - self._earned_at) + GLANCES_A_MESSAGE * (self._dealt - self._paid)
        self._earned_at, self._paid = now, self._dealt
        self._earned = min(len(self._turns), self._earned + earned)
        if len(wanted) > self._earned:
            oldest = sorted(wanted, key=lambda at: self._turns[at].told_at)
            both = zip(oldest, sorted(wanted, key=self._order), strict=True)
            wanted = [*dict.fromkeys(chain.from_iterable(both))][: int(self._earned)]
        self._earned -= len(wanted)
        return wanted

    def _in_doubt(self, now: float) -> list[int]:
        """Return the partitions whose quiet messages may be gone, and whose first one is ahead of the others.

        A read for the quiet ones would be given more of that one.
        """
        since, most = now - SURE, LOOK_AFTER_WORK + min([each.claim for each in self._turns if each.turns], default=0.0)
        return [
            at
            for at, turn in enumerate(self._turns)
            if turn.quiet and turn.turns and turn.claim > most and turn.heard_at < since and at not in self.out
        ]

    def _order(self, at: int) -> tuple[bool, int, float]:
        """Return what puts the partitions in the order in which they come next, as far as is known."""
        turn = self._turns[at]
        return not turn.weight, turn.level, turn.claim

    def unheard(self, since: float) -> list[int]:
        """Return the partitions that told nothing at local time *since* or later, but those left out."""
        return [at for at, turn in enumerate(self._turns) if turn.heard_at < since and at not in self.out]

    def forget(self, partition: int) -> None:
        """Note that what was heard of a partition may not hold any more: it is to be looked at."""
        self._of(partition).heard_at = -math.inf

    def _of(self, partition: int) -> PartitionTurn:
        """Return what is known of a partition. The numbers of one that has left count for nothing."""
        return self._turns[partition] if partition < len(self._turns) else PartitionTurn()

    def _begin(self, turn: PartitionTurn, virtual: float) -> None:
        """Let a partition begin that comes, or comes back. It has no claim on what the others were served meanwhile."""
        least = self._least = max(self._least, self._least_beside(turn))
        turn.base = least - virtual if math.isnan(turn.base) else max(turn.base, least - virtual)

    def _claim(self, turn: PartitionTurn, service: float) -> None:
        """Note that the first one that waits there has received this many seconds of service.

        It may have little, since its work is not charged while it continues. For who comes beside it that is no claim
        without bound.
        """
        turn.base = max(turn.base, self._least_beside(turn) - self._max_behind - service)
        turn.claim = turn.base + service

    def _least_beside(self, turn: PartitionTurn) -> float:
        """Return the least claim of the others where somebody waits."""
        return min([each.claim for each in self._turns if each.turns and each is not turn], default=self._least)

    def _ask(self, found: dict[int, DealtRead], at: int, more: DealtRead) -> None:
        found[at] = found.get(at, NOTHING).and_more(*more)
        self._turns[at].asked += more.turns

    def _may_stay(self, partition: int) -> bool:
        """Return whether the next message may be of this partition again."""
        turn = self._of(partition)
        others = [each for at, each in enumerate(self._turns) if at != partition and at not in self.out]
        is_first = all(
            not each.quiet and (not each.turns or (turn.level <= each.level and turn.claim <= each.claim + LOOK_AFTER))
            for each in others
        )
        if not is_first or partition in self.out or self._stayed >= MAX_IN_A_ROW or not turn.weight:
            self._stayed = 0
            return False
        self._stayed += 1
        return True

    def _deal_rest(self, found: dict[int, DealtRead], count: int) -> None:
        """Deal *count* messages more, without knowing whether they are there."""
        asked = [*found, *(at for at in self.unheard(self._now() - FRESH_SECONDS) if at not in found)]
        if not asked or (not found and count < len(asked)):
            return  # to look takes less
        each, rest = divmod(count, len(asked))
        for place, at in enumerate(asked):
            if some := each + (place < rest):
                self._ask(found, at, DealtRead(some, 0, some))

    def _next_quiet(self, quiet: dict[int, int]) -> int:
        """Return the partition of the next quiet message, in proportion to these, and take it off *quiet*."""
        at = min(quiet, key=lambda at: (max(self._tag, self._turns[at].tag), at))
        turn = self._turns[at]
        self._tag = max(self._tag, turn.tag)
        turn.tag = self._tag + 1 / turn.quiet
        quiet[at] -= 1
        if not quiet[at]:
            del quiet[at]
        return at

    def _next_turn(self, waiting: Sequence[int]) -> int:
        """Return the partition of the next one that waits for a turn. Somebody is *waiting* in these."""
        turns = self._turns
        levels = {at: turns[at].level + int(turns[at].asked_for_turn) for at in waiting}
        fewest = min(levels.values())
        able = [at for at in waiting if levels[at] == fewest]
        # Within one message: else the partition that rounding favours would be asked by each reader of many.
        most = min((turns[at].asked + 1) / max(1, turns[at].turns) for at in able)
        near = [at for at in able if turns[at].asked_for_turn <= most]
        return min(near, key=lambda at: (turns[at].claim, at))


def _in_score(score: int, virtual: int) -> tuple[int, int]:
    """Return for how many in flight a score stands, and the service in it: see `service_in` in lua/accounts.lua.

    The virtual time of a queue that many serve for long is more than a level itself.
    """
    level = (score - virtual + LEVEL // 2) // LEVEL
    return level, score - level * LEVEL
