"""Hierarchical timing wheels, whose clock is driven by a delay queue of buckets. Nothing here does I/O.

The problem: hold a million deadlines, most of them cancelled before they come, with O(1) per insert and per cancel, and
without waking up when nothing is due. A heap takes O(log n), and keeps a cancelled deadline until it comes to the top.

A *wheel* is a circle of buckets, each one *tick* wide. An entry goes into the bucket of the tick at which it is due. A
deadline beyond the circle goes to the *overflow wheel*, whose tick is as long as the whole circle of the wheel below;
that wheel has an overflow wheel, too, and so on. Each is made when it is first needed. When a bucket of an overflow
wheel expires, its entries *cascade*: they move to the wheel below.

A worked example
----------------

Three buckets per wheel, now = 0. Entries a to e are due at 2, 4, 5, 5 and 16::

    wheel  tick  buckets                              revolution shown
    1      1     [0   ] [1    ] [2 a  ]               0 to 2
    2      3     [0-2 ] [3-5 bcd] [6-8  ]             0 to 8
    3      9     [0-8 ] [9-17 e] [18-26]              0 to 26        delay queue: 2, 3, 9

Each wheel shows one revolution: the ticks for which it has buckets. In an overflow wheel the bucket that holds `now` is
empty, because the wheel below shows its ticks. The delay queue holds the start of each bucket that has entries. Nothing
happens until its head, tick 2: a runs. At 3 the bucket [3-5] expires. Wheel 1 goes on to the revolution 3 to 5, and b,
c and d cascade into it in their order::

    1      1     [3   ] [4 b  ] [5 c d]               3 to 5
    2      3     [0-2 ] [3-5  ] [6-8  ]               0 to 8
    3      9     [0-8 ] [9-17 e] [18-26]              0 to 26        delay queue: 4, 5, 9

An entry due at 7 that is inserted now goes to [6-8], since wheel 1 does not show tick 7. At 4 and 5, b, c and d run.
Then 9 is next, because empty buckets are not in the delay queue. There the wheels 1 and 2 go on to the next revolution,
and e cascades::

    1      1     [9   ] [10   ] [11   ]               9 to 11
    2      3     [9-11] [12-14] [15-17 e]             9 to 17
    3      9     [0-8 ] [9-17 ] [18-26]               0 to 26        delay queue: 15

At 15 e cascades once more, to [16] of wheel 1, and at 16 it runs. So an entry moves at most once per wheel, whether it
waits for a second or for a year, and the clock took seven steps for 16 ticks.

These wheels show whole revolutions, as the hands of a clock do. Kafka's wheels slide: each shows the next `size` ticks
from now. Here all entries that are due at one tick are in the same bucket at any moment, so they run in the order of
their insertion. A wheel that slides loses that order, because an entry that is inserted late goes directly to the low
wheel, before an earlier one cascades there. The price is that a deadline just beyond the revolution starts one wheel
higher, and cascades once more.

Costs: an insert takes O(wheels), a cancel O(1), a step of the clock O(log of the buckets in use). The delay queue holds
at most `size` buckets per wheel. Each revolution makes its buckets again, because a dict never shrinks: one that held a
million entries once would stay large.

Source: Varghese & Lauck, "Hashed and Hierarchical Timing Wheels", SOSP 1987 (scheme 7: a clock's hands); the delay
queue of buckets: Kafka's "Purgatory Redesign Proposal" (Matsuda, 2015).

Threads
-------

- Any thread may call `insert` and `Entry.cancel` at any time, also while the clock moves. `insert` takes a lock only
  for the first entry of a bucket, `cancel` only if the entry is just being moved. An insert chooses a bucket, and then
  stores the entry in it. In between the clock may close that bucket, and then empty it. So `insert` looks after the
  store whether the bucket is closed. If it is, either the clock or `insert` takes the entry out, and continues with it.
- A finalizer or a signal handler may call `cancel`. It must not call `insert`, which could wait for its own thread.
- Only one thread at a time may call `advance`, and it must use up the result before the next call.
- Any thread may call `len`, `next_expiration` and `close`. `len` is exact whatever other threads do: it is one sum in C
  under the GIL, at a moment when no entry is being moved.
- All of this relies on the GIL: a single step here, such as `list(bucket)`, is several without it. It was never tested
  without the GIL.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from threading import Lock
from typing import Final

from shardq.arguments import shown
from shardq.errors import ClosedError, ConfigError
from shardq.timing.buckets import CLOSED, Bucket, CascadeTargets, Wheel
from shardq.timing.entry import Entry

DEFAULT_SIZE: Final = 256
"""Buckets per wheel: with ticks of 1 ms three wheels reach 4.6 hours, and a timeout of seconds cascades once."""

MAX_SIZE: Final = 65_536


class TimingWheel:
    """Wheels of `size` buckets each, and the delay queue. Times are in ticks; `advance` says what time it is.

    *kind* is for tests that stop in the middle of an operation: the class of the buckets.
    """

    def __init__(self, size: int = DEFAULT_SIZE, *, now: int = 0, kind: type[Bucket] = Bucket) -> None:
        if type(size) is not int or not 2 <= size <= MAX_SIZE:
            raise ConfigError(f"a wheel needs an int of at least 2 buckets, {MAX_SIZE:,} at most, not {shown(size)}")
        self.now = now
        self._kind = kind
        self._closed = self._recent = kind(0, CLOSED)
        self._last = now
        self._wheels = [Wheel(1, size, now, self._closed)]
        self._queue: list[tuple[int, int, Bucket]] = []  # expiration, level; no two buckets have both in common
        self._late: list[Bucket] = []  # one bucket at most, of entries that were due when they were inserted
        self._expired: deque[Bucket] = deque()  # buckets that expired, whose entries are not all handed over yet
        self._lock = Lock()
        self._ended = False

    def insert(self, entry: Entry, due: int) -> bool:
        """Hold `entry`, which no wheel holds now, until the tick `due`; True if `next_expiration` is earlier by that.

        ClosedError after `close`.
        """
        last = self._last  # entries that are due together share one int, which takes a quarter of an entry's memory
        if due == last:
            due = last
        else:
            self._last = due
        entry.due = due
        bucket = self._recent  # many timers share a timeout, so the bucket of the last one is often right
        if not bucket.start <= due < bucket.end:
            bucket = self._recent = self._find(due)
            if due >= bucket.end:
                return self._insert_locked(entry)
        entry.bucket = bucket
        bucket[entry] = True
        if due < bucket.end or not bucket.pop(entry, False):
            return False
        return self._insert_locked(entry)  # the clock closed the bucket, and emptied it before the entry was in it

    def _find(self, due: int) -> Bucket:
        """The open bucket for the tick `due`, or a closed one. Takes no lock, so the bucket may be closed meanwhile."""
        wheel: Wheel | None = self._wheels[0]
        while wheel is not None:
            if due < wheel.end:
                bucket = wheel.buckets[wheel.index(due)]
                return bucket if bucket.start <= due else self._closed  # else it is of the next revolution
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
        """The bucket for the tick `due`, opened if it was not; and whether it was opened and is the next to expire."""
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
        """Take the bucket that expires next out of the delay queue and its wheel; return its level and the bucket."""
        start, level, bucket = heappop(self._queue)
        bucket.end = CLOSED  # before it is emptied, so that an insert that comes too late sees it
        wheel = self._wheels[level]
        wheel.buckets[wheel.index(start)] = self._closed
        if self._recent is bucket:
            self._recent = self._closed
        return level, bucket

    def advance(self, now: int) -> Iterator[Entry]:
        """Move the clock to the tick `now`, never back; iterate over the entries that are due, in order.

        Each entry is taken out when the iterator hands it over. Until then it can be cancelled, also by the entry
        before it. Entries that were not taken come with the next call.
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
        """Move the entries of `bucket` to the wheel of that `level`.

        Its buckets open when all entries have been moved, so that no new entry gets in front of an older one.
        """
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
        """The tick at which to call `advance` next, None if no entry waits."""
        with self._lock:
            if any([*self._expired, *self._late]):
                return self.now
            while self._queue and not self._queue[0][2]:
                self._retire_next()
            return self._queue[0][0] if self._queue else None

    def _retire_next(self) -> None:
        """Close the next bucket, whose entries were all cancelled; open it again if an entry came before it closed."""
        level, bucket = self._close_next()
        if bucket:
            bucket.end = bucket.start + self._wheels[level].tick
            self._enqueue(level, bucket)

    def __len__(self) -> int:
        """How many entries wait to run."""
        with self._lock:
            return sum(map(len, [*self._expired, *self._late, *(bucket for _, _, bucket in self._queue)]))

    def close(self) -> list[Entry]:
        """Take out all entries, and return them in the order in which they would have run.

        From now on `insert` raises ClosedError, also an insert that has begun: it sees that its bucket is closed.
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
