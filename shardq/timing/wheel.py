"""Hierarchical timing wheels, their clock driven by a delay queue of buckets. Sans-IO.

The problem: hold a million deadlines, nearly all of which are cancelled before they come, at O(1) per insert and per
cancel, without waking up for nothing. A heap pays O(log n), and keeps what was cancelled until that comes to the top.

A *wheel* is a circle of buckets, each one *tick* wide: an entry goes into the bucket of its due tick. A deadline beyond
the circle goes to the *overflow wheel*, whose tick is the whole circle of the wheel below, and so on, each made when it
is first needed. When a bucket of an overflow wheel expires, its entries *cascade* to the wheel below.

A worked example
----------------

Three buckets per wheel, now = 0. Entries a to e are due at 2, 4, 5, 5 and 16::

    wheel  tick  buckets                              turn shown
    1      1     [0   ] [1    ] [2 a  ]               0 to 2
    2      3     [0-2 ] [3-5 bcd] [6-8  ]             0 to 8
    3      9     [0-8 ] [9-17 e] [18-26]              0 to 26        delay queue: 2, 3, 9

Each wheel shows one turn. In an overflow wheel the bucket that holds `now` is empty: the wheel below shows its ticks.
Nothing happens until the head of the delay queue, tick 2: a runs. At 3 the bucket [3-5] expires; wheel 1 turns, and
b, c, d cascade into it in their order::

    1      1     [3   ] [4 b  ] [5 c d]               3 to 5
    2      3     [0-2 ] [3-5  ] [6-8  ]               0 to 8
    3      9     [0-8 ] [9-17 e] [18-26]              0 to 26        delay queue: 4, 5, 9

An entry due at 7 inserted now would go to [6-8]: wheel 1 does not show it. At 4 and 5 b, c and d run. Then 9 is next:
an empty bucket is not in the delay queue. All three wheels turn there, and e cascades::

    1      1     [9   ] [10   ] [11   ]               9 to 11
    2      3     [9-11] [12-14] [15-17 e]             9 to 17
    3      9     [0-8 ] [9-17 ] [18-26]               0 to 26        delay queue: 15

At 15 e cascades once more, to [16] of wheel 1, and at 16 it runs. So an entry moves at most once per wheel, whether it
waits for a second or for a year, and the clock took seven steps for 16 ticks.

These wheels show a whole turn, as a clock's hands do; Kafka's slide, and show the next `size` ticks from now. So here
all entries due at one tick are in the same bucket at any moment, and run in the order of their insertion. Sliding loses
that: a late entry goes to the low wheel directly, before an early one cascades there. The price: a deadline just beyond
the turn starts one wheel higher, and cascades once more.

Costs: insert O(wheels), cancel O(1), a step of the clock O(log of the buckets in use). At most `size` buckets per wheel
are in the delay queue. A place in the circle is used again each turn; its bucket is made anew, because a dict never
shrinks, and one that held a million entries once would stay large.

Source: Varghese & Lauck, "Hashed and Hierarchical Timing Wheels", SOSP 1987 (scheme 7: a clock's hands); the delay
queue of buckets: Kafka's "Purgatory Redesign Proposal" (Matsuda, 2015).

Threads
-------

- `insert` and `Entry.cancel` may be called by any thread at any time, while the clock moves too. Neither takes a lock,
  but for the first entry of a bucket. Between looking for its bucket and storing into it an insert may be overtaken by
  the clock, which closes the bucket first and drains it then: so insert looks again afterwards, and whoever takes the
  entry out, the clock or insert, goes on with it.
- `cancel` may also be called by a finalizer or a signal handler. `insert` may not: it could wait for its own thread.
- `advance` is for one thread at a time, and its result is to be used up before the next.
- `len`, `next_expiration` and `close` may be called by any thread. `len` is exact, whatever the others do: one sum in
  C, under the GIL, while no entry moves. (Without a GIL, or with linked lists, it is when they pause.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from threading import Lock
from typing import Final

from shardq.errors import ClosedError, ConfigError
from shardq.keys import shown
from shardq.timing.buckets import CLOSED, Bucket, CascadeTargets, Wheel
from shardq.timing.entry import Entry

DEFAULT_SIZE: Final = 256
"""Buckets per wheel: with ticks of 1 ms three wheels reach 4.6 hours, and a timeout of seconds cascades once."""


class TimingWheel:
    """Wheels of `size` buckets of one `kind`, and the delay queue. All time is in ticks, as `advance` tells it."""

    def __init__(self, size: int = DEFAULT_SIZE, *, now: int = 0, kind: type[Bucket] = Bucket) -> None:
        if type(size) is not int or size < 2:
            raise ConfigError(f"a wheel needs an int of at least 2 buckets, not {shown(size)}")
        self.now = now
        self._kind = kind
        self._closed = self._recent = kind(0, CLOSED)
        self._last = now
        self._wheels = [Wheel(1, size, now, self._closed)]
        self._queue: list[tuple[int, int, Bucket]] = []  # expiration, level; no two buckets have both in common
        self._late: list[Bucket] = []  # inserted when already due
        self._expired: deque[Bucket] = deque()  # fallen due, and not run to the end yet
        self._lock = Lock()
        self._ended = False

    def insert(self, entry: Entry, due: int) -> bool:
        """Hold `entry`, which no wheel holds now, until the tick `due`; whether that made `next_expiration` earlier."""
        last = self._last  # one int for all that are due together: a quarter of what an entry takes
        if due == last:
            due = last
        else:
            self._last = due
        entry.due = due
        bucket = self._recent  # most timers of a process share a timeout, so one often goes where the last one went
        if not bucket.start <= due < bucket.end:
            bucket = self._recent = self._find(due)
            if due >= bucket.end:
                return self._insert_locked(entry)
        entry.bucket = bucket
        bucket[entry] = True
        if due < bucket.end or not bucket.pop(entry, False):
            return False
        return self._insert_locked(entry)  # the clock closed the bucket before it could see the entry in it

    def _find(self, due: int) -> Bucket:
        """The open bucket for the tick `due`, else a closed one. Takes no lock, so it may be out of date."""
        wheel: Wheel | None = self._wheels[0]
        while wheel is not None:
            if due < wheel.end:
                bucket = wheel.buckets[wheel.index(due)]
                return bucket if bucket.start <= due else self._closed  # it may be one of the next turn
            wheel = wheel.overflow
        return self._closed

    def _insert_locked(self, entry: Entry) -> bool:
        with self._lock:
            if self._ended:
                raise ClosedError("the timer is closed: make a new one")
            if entry.due <= self.now:
                bucket, sooner = self._late_bucket(), True
            else:
                bucket, sooner = self._bucket_for(entry.due)
            entry.bucket = bucket
            bucket[entry] = True
            return sooner

    def _late_bucket(self) -> Bucket:
        if not self._late:
            self._late.append(self._kind(0, CLOSED))
        return self._late[0]

    def _bucket_for(self, due: int) -> tuple[Bucket, bool]:
        """The bucket for the tick `due`, opened if need be; whether it is the next to expire, and was not before."""
        level = 0
        while due >= self._wheels[level].end:
            level += 1
            if level == len(self._wheels):
                self._add_overflow()
        wheel = self._wheels[level]
        bucket = wheel.buckets[wheel.index(due)]
        if bucket is not self._closed:
            return bucket, False
        start = due - due % wheel.tick
        bucket = self._kind(start, start + wheel.tick)
        self._enqueue(level, bucket)
        return bucket, self._queue[0][2] is bucket

    def _add_overflow(self) -> None:
        top = self._wheels[-1]
        top.overflow = Wheel(top.interval, len(top.buckets), self.now, self._closed)
        self._wheels.append(top.overflow)

    def _enqueue(self, level: int, bucket: Bucket) -> None:
        wheel = self._wheels[level]
        wheel.buckets[wheel.index(bucket.start)] = bucket
        heappush(self._queue, (bucket.start, level, bucket))

    def _close_next(self) -> tuple[int, Bucket]:
        """Take the next bucket to expire out of the delay queue and its wheel; its level, and the bucket."""
        start, level, bucket = heappop(self._queue)
        bucket.end = CLOSED  # first, so that an insert that comes too late notices
        wheel = self._wheels[level]
        wheel.buckets[wheel.index(start)] = self._closed
        if self._recent is bucket:
            self._recent = self._closed
        return level, bucket

    def advance(self, now: int) -> Iterator[Entry]:
        """Move the clock to the tick `now`, never back; what fell due, in order, each taken out as it is handed over.

        So an entry can be cancelled until it is handed over, also by the one before it. What is not asked for comes
        with the next call.
        """
        with self._lock:
            self._expired.extend(self._late)
            self._late.clear()
            while self._queue and self._queue[0][0] <= now:
                level, bucket = self._close_next()
                self._set_now(bucket.start)
                if level:
                    self._cascade(level - 1, bucket)
                else:
                    self._expired.append(bucket)
            self._set_now(max(now, self.now))
        return self._hand_over()

    def _set_now(self, now: int) -> None:
        self.now = now
        for wheel in self._wheels:
            if now < wheel.end:
                break
            wheel.revolve(now)

    def _cascade(self, level: int, bucket: Bucket) -> None:
        """Empty `bucket` into the wheel below, whose buckets open when all is in, so nobody gets ahead of the older."""
        tick = self._wheels[level].tick
        targets = CascadeTargets(tick, self._kind)
        bucket.cascade(tick, targets)
        for each in [each for each in targets.values() if len(each)]:  # one is empty if its entry went elsewhere
            each.end = each.start + tick
            self._enqueue(level, each)

    def _hand_over(self) -> Iterator[Entry]:
        while self._expired:
            bucket = self._expired[0]
            for entry in list(bucket):
                if bucket.pop(entry, False):
                    entry.bucket = None
                    yield entry
            self._expired.popleft()

    def next_expiration(self) -> int | None:
        """The tick at which to call `advance` next, None if there is nothing to wait for."""
        with self._lock:
            if any([*self._expired, *self._late]):
                return self.now
            while self._queue and not self._queue[0][2]:
                self._retire_next()
            return self._queue[0][0] if self._queue else None

    def _retire_next(self) -> None:
        """Close a bucket whose entries were all cancelled; open it again if an insert was quicker."""
        level, bucket = self._close_next()
        if bucket:
            bucket.end = bucket.start + self._wheels[level].tick
            self._enqueue(level, bucket)

    def __len__(self) -> int:
        """How many entries wait to run."""
        with self._lock:
            return sum(map(len, self._buckets()))

    def _buckets(self) -> list[Bucket]:
        return [*self._expired, *self._late, *(bucket for _, _, bucket in self._queue)]

    def close(self) -> list[Entry]:
        """Take everything out, in the order in which it would have run; from now on `insert` raises ClosedError.

        No bucket is open then, so an insert that comes in between is noticed by the same second look as always.
        """
        with self._lock:
            self._ended = True
            due = [*self._expired, *self._late]
            self._late.clear()
            later = [self._close_next()[1] for _ in range(len(self._queue))]
        by_due = sorted(_taken_out(later), key=lambda entry: entry.due)  # stable, and one bucket has all of a tick
        return [*_taken_out(due), *by_due]


def _taken_out(buckets: list[Bucket]) -> list[Entry]:
    return [entry for bucket in buckets for entry in list(bucket) if entry.leave()]
