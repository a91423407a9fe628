"""The queue in plain Python: what must be deliverable, leased, delayed, dead and gone. It knows nothing of the product.

Time is counted in units; what is asked for ends at a whole unit, and passes only when a walk says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

EVER = 10**9
"""A time that never comes."""

WAITING, DELAYED, LEASED, DEAD, GONE = "waiting", "delayed", "leased", "dead", "gone"
ALIVE = (WAITING, DELAYED, LEASED)


@dataclass
class Own:
    """The limits of one name; None is as the queue says. Tokens come one in a unit."""

    cap: int | None = None
    burst: int | None = None
    paused_until: int = 0
    until: int = EVER
    """When cap and burst end. It stays when they have, since what is stored of them may be there still."""

    @property
    def is_any(self) -> bool:
        """Whether there is anything to store, or may be."""
        return self.cap is not None or self.burst is not None or self.paused_until > 0 or self.until < EVER


@dataclass
class Terms:
    """The settings of the queue that the model needs, as they are now."""

    streams: int
    per_shard: int
    window: int = 0
    cap: int = 0
    max_backlog: int = 0
    rate_burst: int = 0
    total_in_flight: int = 0
    total_burst: int = 0
    drop_dead: int = 0
    paused_until: int = 0
    parents: int = 0
    max_deliveries: int = 4
    max_dead: int = 1000
    max_len: int = 0
    max_dedup: int = 1_000_000
    dedup_window: int = 3
    journal: int = 0
    key_scope: Literal["shard_key", "queue"] = "shard_key"
    weights: dict[bytes, int] = field(default_factory=dict)
    shards: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    weights_until: dict[bytes, int] = field(default_factory=dict)
    own: dict[bytes, Own] = field(default_factory=dict)
    full_at: dict[bytes, float] = field(default_factory=dict, repr=False)
    """When the bucket of a name has all of its tokens; under '' that of the whole queue."""
    full_from: dict[bytes, float] = field(default_factory=dict, repr=False)
    """The same at the earliest, where a burst was changed: at the next look no bucket is emptier than empty."""
    fair: bool = False
    """Whether there ever was a setting of fairness: from then on all that is written counts."""
    fewest_deliveries: int = EVER
    """How many deliveries were allowed when these were fewest: who had so many has given up its unique key."""

    def __post_init__(self) -> None:
        self.note_changes()

    def note_changes(self) -> None:
        """Settings were changed."""
        self.fewest_deliveries = min(self.fewest_deliveries, self.max_deliveries)
        self.fair = self.fair or bool(self.window or self.cap or self.max_backlog or self.rate_burst)

    def is_limited(self, name: bytes) -> bool:
        """Whether there is any bound on what is delivered of a name."""
        return bool(self.cap or self.rate_burst or name in self.own)

    def burst_of(self, name: bytes) -> int:
        """How many tokens the bucket of a name holds; 0 if it has none. '' is the whole queue."""
        if not name:
            return self.total_burst
        own = self.own.get(name, Own())
        return self.rate_burst if own.burst is None else own.burst

    def tokens(self, name: bytes, now: int) -> int:
        """How many of a name may be delivered at once under its rate."""
        burst = self.burst_of(name)
        return burst - math.ceil(max(0.0, self.full_at.get(name, 0.0) - now)) if burst else EVER

    def most_tokens(self, name: bytes, now: int) -> int:
        """How many of a name may be delivered at most; `tokens` is what must be."""
        burst, full_at = self.burst_of(name), self.full_from.get(name, self.full_at.get(name, 0.0))
        return burst - math.ceil(max(0.0, full_at - now)) if burst else EVER

    def spend(self, name: bytes, now: int, count: int) -> None:
        """So many were delivered."""
        if self.burst_of(name) and count:
            self.full_at[name] = max(self.full_at.get(name, 0.0), now) + count
            if name in self.full_from:
                self.full_from[name] = max(self.full_from[name], now) + count

    def end_limits(self, now: int) -> None:
        """Limits and weights are over whose time has come."""
        for name, own in self.own.items():
            if own.until <= now and (own.cap, own.burst) != (None, None):
                own.cap = own.burst = None
                self.forget_bucket(name)
                self.change_bursts([name], now)
        for name in [name for name, until in self.weights_until.items() if until <= now]:
            del self.weights_until[name]
            self.weights.pop(name, None)

    def forget_bucket(self, name: bytes) -> None:
        """A name has no rate of its own any more."""
        if not self.rate_burst:
            self.full_at.pop(name, None)
            self.full_from.pop(name, None)

    def change_bursts(self, names: Iterable[bytes], now: int) -> None:
        """The bursts of these names may be others now."""
        for name in names:
            if self.burst_of(name):
                before = self.full_from.get(name, self.full_at.get(name, 0.0))
                self.full_from[name] = min(before, now + self.burst_of(name))
            elif name:
                self.full_from[name] = 0.0  # it has no rate: if it gets one again, it may begin with all tokens

    def allowance(self, name: bytes, flight: int, now: int) -> int:
        """How many of a name may be delivered now."""
        own = self.own.get(name, Own())
        if own.paused_until > now:
            return 0
        cap = self.cap_of(name) if own.cap is None else own.cap
        room = cap - flight if cap else EVER
        return min(room, self.tokens(name, now))

    def name_of(self, key: bytes) -> bytes:
        """Under which name a shard key is accounted: its own, or its parent's."""
        return (key.split(b"/")[0] or key) if self.parents else key

    def cap_of(self, name: bytes) -> int:
        """How many deliveries of that name may be in flight; only asked where there is a cap."""
        return self.cap * self.weights.get(name, 1)


@dataclass
class Known:
    """One message. `life` counts its deliveries since it was written or redriven, `total` all of them."""

    number: int
    message_id: str
    key: bytes
    counts: bool
    headers: dict[str, str]
    state: str = WAITING
    until: int = 0  # due, or end of the lease
    life: int = 0
    total: int = 0
    error: str = ""
    reason: str = ""  # of the dead letter
    stale: bool = False  # past its own deadline: whoever looks at it drops it
    rejected: bool = False  # belongs among the dead letters, and waits for room there
    cancelled: bool = False  # while in flight
    holder: Any = None
    regime: int = 0  # how often the rules had changed when it was written
    plain: bool = True  # never delayed, given back or redriven: first deliveries of such come in order
    quiet_since: int | None = None  # how many messages had been handed out when it was written, alone of its shard key
    unique: str = ""  # its unique key, until it ends or another message has it
    has_unique_key: bool = False  # it was written with one
    buried_as: bytes = b""  # of a dead letter: in whose share it is, also when the queue has parents no more
    bound: int = 0  # within how many more it must be handed out

    @property
    def entry(self) -> int:
        """Its number in the queue's own count of messages."""
        return int(self.message_id.split("-")[1])

    @property
    def place(self) -> str:
        """Where its body was stored: a stream's number, or d."""
        return self.message_id.split("-")[2]


@dataclass
class Model:
    """All messages that there ever were, and the time."""

    terms: Terms
    now: int = 0
    served: int = 0
    regime: int = 0
    unsettled: bool = False  # the rules have changed, and nobody has read since
    messages: dict[str, Known] = field(default_factory=dict)
    present: dict[str, Known] = field(default_factory=dict)  # those of them that are not gone since the last step
    is_stopped: bool = (
        False  # the whole queue was paused or capped: a read that may deliver nothing takes notifications
    )
    keyed: dict[str, tuple[str, int]] = field(default_factory=dict)  # dedup key: message id, until when remembered
    counters: dict[str, int] = field(default_factory=dict)  # what the queue counts of what happened

    def count(self, counter: str, by: int = 1) -> None:
        """So many more of something happened."""
        self.counters[counter] = self.counters.get(counter, 0) + by

    def having(self, *states: str) -> Iterator[Known]:
        """The messages in one of these states, in the order of writing."""
        return (each for each in self.present.values() if each.state in states)

    def add(self, known: Known) -> None:
        """One more message."""
        self.messages[known.message_id] = self.present[known.message_id] = known

    def forget(self) -> None:
        """A step is over, and what is gone stays so."""
        for message_id in [each.message_id for each in self.present.values() if each.state == GONE]:
            del self.present[message_id]

    def living(self) -> list[Known]:
        """All that count as messages of the queue."""
        return list(self.having(*ALIVE))

    def is_held(self, each: Known) -> bool:
        """Whether somebody has a live lease of it."""
        return each.state == LEASED and each.until > self.now

    def is_over(self, each: Known) -> bool:
        """Whether it was cancelled in flight, and its lease has ended: whatever the keys have of it, it is gone."""
        return each.state == LEASED and each.cancelled and not self.is_held(each)

    def has_ended(self, each: Known) -> bool:
        """Whether its lease has ended, so that it waits, though no read has taken it back."""
        return each.state == LEASED and not each.cancelled and not self.is_held(each)

    def waiting(self) -> list[Known]:
        """All that wait at this moment, or are delayed."""
        return [each for each in self.having(*ALIVE) if each.state != LEASED or self.has_ended(each)]

    def is_doomed(self, each: Known) -> bool:
        """Whether whoever comes upon it buries it."""
        return each.rejected or each.life >= self.terms.max_deliveries

    def may_use(self, used: int, total: int, bound: int, more: int = 1) -> bool:
        """Whether a tenant must get more of a bound.

        It uses less than four times what is free; of the last 4 % of a bound of 400 or more, less than a sixteenth.
        """
        free, part = bound - total, bound // 25
        return more <= free and used < 4 * free and (part < 16 or free - more >= part or 16 * used < free)

    def letters_of(self, name: bytes) -> list[Known]:
        """The dead letters in the share of a shard key, or with parents of a parent."""
        return [each for each in self.having(DEAD) if each.buried_as == name]

    def has_room_among(self, name: bytes) -> bool:
        """Whether there must be room for another dead letter of that name."""
        total = sum(1 for _ in self.having(DEAD))
        return self.may_use(len(self.letters_of(name)), total, self.terms.max_dead)

    def deliverable(self) -> list[Known]:
        """What a read may hand out, lease by lease and account by account."""
        ready = [each for each in self.having(*ALIVE) if each.state == WAITING or each.until <= self.now]
        return [each for each in ready if not (each.stale or each.cancelled or self.is_doomed(each))]

    def spelled(self, shard_key: bytes, text: str) -> str:
        """A dedup key or unique key as it is remembered."""
        if self.terms.key_scope == "queue":
            return text
        return f"{len(shard_key)}:{shard_key.decode(errors='surrogateescape')}{text}"

    def holder(self, unique: str) -> Known | None:
        """The message that has this unique key, spelled, and can still be delivered or is being worked on."""
        return next((each for each in self.having(*ALIVE) if each.unique == unique and self.stands(each)), None)

    def stands(self, each: Known) -> bool:
        """Whether a message may stand for another with its unique key."""
        return not each.cancelled and (self.is_held(each) or not self.is_doomed(each))

    def may_have_given_up(self, each: Known) -> bool:
        """Whether a message was to die for some time, so that its unique key may be another's, or still its own."""
        return not self.is_held(each) and (each.life >= self.terms.fewest_deliveries or self.is_doomed(each))

    def remembered(self, dedup: str) -> str | None:
        """The id of the message that was written with this dedup key, spelled, while its window lasts."""
        message_id, until = self.keyed.get(dedup, ("", 0))
        return message_id if until > self.now else None
