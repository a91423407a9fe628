"""The leases that a client holds: the end of each is in the wheel of the client's timer.

A delivery refers to its `DeliveryLease`, which is an entry of the wheel and does not refer to the delivery. So a
delivery that its user forgets is freed at once, with its payload, and what is left in the wheel goes away at the
deadline. To hold a lease and to settle it takes O(1), about half a microsecond together; nothing ever looks at all
leases.

**Who decides that a lease is lost?** The clock: `Lease.lost` compares the deadline with the time. So it is right at
once when a machine that was suspended continues, or when the timer's thread or loop is held up. The wheel tells of it:
at the deadline it takes the entry out, and then the callbacks are called. An extension that makes the lease longer only
notes the new deadline; when the entry comes up at the old one, it is inserted again. Redis may say so earlier, as the
answer to an extension or an ack. Then the lease is lost, too.

**Lost is lost.** A holder that learned that its lease is lost may have dropped the work. If the lease lived again,
since an extension was answered late, somebody else could ack work that was not done. So the first check that finds it
over, or the wheel, decides for good. Only its holder's own ack, nack or reject can still succeed.
"""

from __future__ import annotations

import contextlib
import math
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol, Self, TypeVar

from shardq.arguments import flag, function, seconds
from shardq.client.results import PACE
from shardq.client.work import Work
from shardq.clock import Clock
from shardq.errors import ClosedError
from shardq.model import DeliveryView, Received
from shardq.ops.settle.settle import LOST_RESULTS, Settled, extended
from shardq.timing import Entry, Timer
from shardq.timing.aside import run_logged

Call = Callable[[Callable[[], object]], object]
_new = object.__new__  # as in `Timer.call_later`: a lease is made for each delivery


MAX_COST: Final = 3600.0
"""The most that a delivery may be charged, in seconds."""

HELD_STATE: Final = "held"
ENDED: Final = "ended"
SETTLED: Final = "settled"
"""The decision about a lease. One that is HELD may be over by now. (`worker/state.py`: why these are no Enum.)"""


class LeaseHolder(Protocol):
    """The functions of a worker that the leases of its jobs call.

    It is on the thread or loop of the timer, and must be short.
    """

    def on_lease_lost(self, job: Any) -> None:
        """The lease of *job* is lost. May be called more than once."""

    def on_lease_shortened(self, job: Any) -> None:
        """The lease of *job* was made shorter."""


class DeliveryLease(Entry):
    """One lease, and its end in the wheel. Any thread may use it."""

    __slots__ = ("_leases", "callbacks", "deadline", "holder", "state")

    _leases: Leases
    callbacks: list[Callable[[], object]] | None
    deadline: float
    holder: tuple[LeaseHolder, Any] | None  # a worker's keeper, and the job
    state: str

    @property
    def lost(self) -> bool:
        """Whether the deadline came by the local clock, or Redis said that the lease is lost, before it was settled."""
        state = self.state
        return state is ENDED or (
            state is HELD_STATE and self._leases.clock.monotonic() >= self.deadline and self._end()
        )

    def _end(self) -> bool:
        """Decide whether the lease is over, since it seems to be."""
        with self._leases.lock:
            if self.state is HELD_STATE and self._leases.clock.monotonic() >= self.deadline:
                self.state = ENDED
        return self.state is ENDED

    def settle(self) -> None:
        """Note that the delivery is settled: nobody hears any more that its lease is lost."""
        self.state = SETTLED
        self.holder = None
        bucket = self.bucket
        if bucket is not None and (bucket.pop(self, False) or self.leave()):  # mostly the call of `leave` is saved
            self.bucket = None

    def lose(self) -> None:
        """Note that Redis said that the lease is lost, and tell of it."""
        with self._leases.lock:
            if self.state is SETTLED:
                return
            self.state = ENDED
        self.leave()
        self.tell()

    def move(self, deadline: float) -> None:
        """Note the deadline that an extension gave the lease; in vain if it was lost by then."""
        with self._leases.lock:
            if self.state is not HELD_STATE:
                return
            before, self.deadline = self.deadline, deadline
            if deadline < before:
                self.leave()
                self._leases.insert(self)
        if deadline < before and (holder := self.holder) is not None:
            holder[0].on_lease_shortened(holder[1])

    def fire(self) -> None:
        """Tell that the lease is over; unless it was extended since this entry was inserted."""
        if self.lost:
            self.tell()
            return
        with self._leases.lock:
            if self.state is HELD_STATE and not self.pending:  # else it was made shorter meanwhile, which inserted it
                self._leases.insert(self)

    def when_lost(self, callback: Callable[[], object]) -> None:
        """Call *callback* once, from `tell`, when the lease is lost; at once if it is lost already."""
        with self._leases.lock:
            if self.callbacks is None:
                self.callbacks = []
            self.callbacks.append(callback)
        if self.lost:
            self.tell()

    def tell(self) -> None:
        """Tell the holder, and call each callback that was not called yet."""
        holder, self.holder = self.holder, None
        if holder is not None:
            holder[0].on_lease_lost(holder[1])
        callbacks = self.callbacks or []
        with contextlib.suppress(IndexError):
            while True:
                self._leases.call(callbacks.pop(0))  # the pop is atomic: each is called once


class Leases:
    """The leases of one client. *call* runs a user's function soon, where it disturbs nobody.

    It refers to the timer weakly, because the timer's wheel refers to the leases, and they to this.
    """

    def __init__(self, timer: Timer, clock: Clock, call: Call) -> None:
        self._timer = weakref.ref(timer)
        self.clock = clock
        self.call = call
        self.forked()

    def forked(self) -> None:
        """Start again in a forked child: another thread of the parent may have had the lock."""
        self.lock = threading.RLock()  # a finalizer may ask whether a lease is lost

    def hold(self, deadline: float) -> DeliveryLease:
        """Return a new lease, which is in the wheel until *deadline*."""
        lease = _new(DeliveryLease)
        lease._leases = self
        lease.deadline = deadline
        lease.state = HELD_STATE
        lease.bucket = lease.callbacks = lease.holder = None
        timer = self._timer()
        if timer is not None:
            try:
                timer.insert_at(lease, deadline)
            except ClosedError:  # the client was closed meanwhile
                lease.bucket = None
        return lease

    def insert(self, lease: DeliveryLease) -> None:
        """Put *lease* into the wheel. Once the client is closed it tells of nothing, and only the clock decides."""
        timer = self._timer()
        if timer is not None:
            try:
                timer.insert_at(lease, lease.deadline)
            except ClosedError:
                return


class LeasedDelivery(DeliveryView):
    """The common part of `Delivery` and `AsyncDelivery`: the delivery's lease, and the callbacks for its loss."""

    __slots__ = ("_cost", "_lease", "_queue", "_told", "besides", "took", "work")

    _told: tuple[float, bool] | None  # when the last progress was sent, and whether all was done
    _cost: float | None
    took: float | None
    """How long the work took, in seconds; None until it was measured."""
    besides: float
    """For the parts of shardq: for how long it ran besides, in seconds, as extensions of the lease told.

    It is below 0 if others have a part of it.
    """
    work: Work
    """For the parts of shardq: what measures the time of the work."""

    def __init__(self, received: Received, queue: Any, work: Work) -> None:
        self.received = received  # not by the base class: this is done for each delivery
        self._codecs = queue._codecs
        self._clock = queue.state.clock
        self._lost = self.answered = self.cancelled = self.dead = False
        self._queue, self._told, self._cost, self.took, self.work = queue, None, None, None, work
        self.besides = 0.0
        self._lease: DeliveryLease = queue._client.leases.hold(received.deadline)

    @property
    def lost(self) -> bool:
        """Whether the lease is lost. Then stop: the message is not yours any more, and another consumer may have it.

        It is lost when `deadline` has come, by the local clock and without asking Redis, and when Redis said so to an
        extend, ack, nack or reject. A worker also says so to a handler that shall stop. A successful extend moves the
        deadline, but a delivery that was found lost stays lost. One that you settled is not lost.
        """
        return self._lost or self._lease.lost

    @lost.setter
    def lost(self, lost: bool) -> None:
        self._lost = flag("lost", lost)
        if lost:
            self._lease.tell()

    @property
    def cost(self) -> float | None:
        """The charge of the shard key for the work on this delivery, in place of the time it takes, in seconds.

        None: what the clock measures. It may be set until the delivery is settled, from 0 to 3,600. It counts for whose
        turn is next, if others waited when this was delivered.
        """
        return self._cost

    @cost.setter
    def cost(self, cost: float | None) -> None:
        self._cost = None if cost is None else seconds("cost", cost, 0, MAX_COST)

    def on_lost(self, callback: Callable[[Self], object]) -> None:
        """Call *callback* with this delivery once, when it turns lost; at once if it is. Never after it was settled.

        It is called at the deadline; after the machine was suspended, within a second. With `AsyncClient` it is a plain
        function, which the event loop calls. With `Client` a thread calls all callbacks of the client, one after the
        other. An error of a callback is logged.

        ConfigError if it cannot be called.

        >>> delivery.on_lost(lambda lost: print("stop", lost.message_id))
        """
        self._lease.when_lost(partial(_call, function("callback", callback), self))

    @property
    def has_told(self) -> bool:
        """Whether its progress was reported, so that there is something to forget when it is acked."""
        return self._told is not None

    def _is_worth_telling(self, *, is_last: bool) -> bool:
        """Return whether progress may be sent now: once in a while, and once more when all is done."""
        now = self._clock.monotonic()
        told_at, was_last = self._told or (-math.inf, False)
        if now - told_at < PACE and (was_last or not is_last):
            return False
        self._told = (now, is_last)
        return True

    def _note(self, *, lost: bool) -> None:
        """Note that Redis answered: the delivery is settled, or its lease was *lost*."""
        self.answered = True
        if lost:
            self._lease.lose()
        else:
            self._lease.settle()

    def _extended(self, sent: float, duration: float) -> None:
        """Note that an extension of *duration* seconds succeeded, which was sent at local time *sent*."""
        self.received = extended(self.received, sent, duration)
        self._lease.move(self.received.deadline)


D = TypeVar("D", bound=LeasedDelivery)


def delivered(kind: type[D], rows: Sequence[Received], queue: Any) -> list[D]:
    """Return the deliveries of what one read of *queue* got."""
    clock = queue.state.clock
    work = Work(clock, clock.monotonic())
    return [kind(row, queue, work) for row in rows]


def _call(callback: Callable[[D], object], delivery: D) -> None:
    if delivery._lease.state is not SETTLED or delivery._lost:  # it may have been settled meanwhile
        run_logged(partial(callback, delivery))


def note_results(deliveries: Sequence[D], results: Sequence[Settled]) -> list[D]:
    """Note how settling *deliveries* ended, and return those whose leases were lost, each once."""
    late: dict[str, D] = {}
    settled, dead = Settled.OK, Settled.DEAD  # looked up once: an enum's members and hashes are slow
    for delivery, result in zip(deliveries, results, strict=True):
        lost = result is not settled and result in LOST_RESULTS
        delivery._note(lost=lost)
        if lost:
            delivery.cancelled = result is Settled.CANCELLED
            late.setdefault(delivery.received.token, delivery)
        elif result is dead:
            delivery.dead = True
    return list(late.values())
