"""A worker as a state machine: events in, actions out. No I/O, no clock, no threads.

Three tables say all: how the worker lives, how long a message is the worker's to settle, and whether its slot is taken.
The last two are apart, since they end apart: a handler may still run when its lease is lost, and a message waits to be
settled when its handler has ended. `docs/worker.md` draws the tables; `make diagrams` keeps the drawing true.

A runner reports what happened (`arrived`, `ended`, `lost`, ...) and then performs what `next` says until it says None.
It calls from one thread at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from shardq.model import DeliveryView
from shardq.worker.outcome import GIVE_BACK, Outcome, Verb

Table: TypeAlias = Mapping[str, Mapping[str, str]]

# Strings, not an Enum: its members are hashed in Python, and each message makes five lookups.
RUNNING: Final = "running"
AWAY: Final = "away"
DRAINING: Final = "draining"
RETURNING: Final = "returning"
STOPPED: Final = "stopped"
LIFE: Final[Table] = {
    RUNNING: {"Redis fails": AWAY, "stop": DRAINING},
    AWAY: {"Redis answers": RUNNING, "stop": DRAINING},
    DRAINING: {"grace over": RETURNING, "nothing held": STOPPED, "give up": STOPPED},
    RETURNING: {"nothing held": STOPPED, "give up": STOPPED},
    STOPPED: {},
}
"""Of the worker. AWAY goes on trying to read; it exists so that a change is told once."""

LEASED: Final = "leased"
DECIDED: Final = "decided"
SENT: Final = "sent"
GONE: Final = "gone"
MESSAGE: Final[Table] = {
    LEASED: {"decide": DECIDED, "lose": GONE},
    DECIDED: {"send": SENT, "lose": GONE, "decide": DECIDED},
    SENT: {"settled": GONE, "unsettled": DECIDED, "lose": SENT, "decide": SENT},
    GONE: {"lose": GONE, "decide": GONE},
}
"""Of a message that the worker holds. The first decision counts, and a lost lease ends the worker's say in it."""

WAITING: Final = "waiting"
BUSY: Final = "busy"
FREE: Final = "free"
SLOT: Final[Table] = {
    WAITING: {"start": BUSY, "let go": FREE},
    BUSY: {"end": FREE},
    FREE: {},
}
"""Of the place that its handler takes up."""

BATCH: Final = 500
"""So many messages are settled at a time."""


class Job:
    """One delivery in the worker's hands. `handle` is the runner's; `started` is on the runner's clock."""

    __slots__ = ("delivery", "handle", "message", "outcome", "slot", "started")

    def __init__(self, delivery: DeliveryView) -> None:
        self.delivery = delivery
        self.message = LEASED
        self.slot = WAITING
        self.outcome: Outcome | None = None
        self.handle: Any = None
        self.started = 0.0


class Read(NamedTuple):
    """Ask for up to `credit` messages, and wait for them; then call `arrived` or `read_failed`."""

    credit: int


class Settle(NamedTuple):
    """Tell Redis how these ended; then call `settled` or `unsettled`. One at a time."""

    verb: Verb
    jobs: list[Job]


Action: TypeAlias = Job | Read | Settle
"""What to do next. A Job means: run its handler, then call `ended`."""


class WorkerState:
    """All that a worker knows. At most *concurrency* handlers run; *read_ahead* more messages may wait for one."""

    def __init__(self, concurrency: int, read_ahead: int = 0) -> None:
        self.life = RUNNING
        self.concurrency = concurrency
        self.busy = 0
        self.held: set[Job] = set()
        """What is not over: its message is not settled or its handler still runs."""
        self.max_deliveries: int | None = None
        """The queue's; once it is known, what would die if it were given back is finished instead."""
        self._window = concurrency + read_ahead
        self._waiting: deque[Job] = deque()
        self._startable = 0  # of those waiting, how many still may start
        self._outbox: dict[Verb, list[Job]] = {"ack": [], "nack": [], "reject": []}
        self._unsettled = 0
        self._reading = self._settling = False

    # --- actions ----------------------------------------------------------------------------------------------------

    def next(self) -> Action | None:
        """The next thing to do, None when there is nothing until the next event."""
        if self._startable and self.busy < self.concurrency:
            return self._start()
        if self.life == STOPPED:
            return None
        if not self._settling and (action := self._settle()):
            return action
        if not self._reading and (credit := self.credit) > 0:
            self._reading = True
            return Read(credit)
        if self.life in (DRAINING, RETURNING) and self._holds_nothing():
            self._change("nothing held")
        return None

    @property
    def more(self) -> bool:
        """Whether `next` has, most likely, something to say: worth waking one more thread."""
        return bool(
            (self._startable and self.busy < self.concurrency)
            or (not self._settling and self._unsettled)
            or (not self._reading and self.credit > 0)
        )

    @property
    def credit(self) -> int:
        """How many messages may be asked for now."""
        if self.life not in (RUNNING, AWAY) or self._unsettled > 2 * max(self._window, BATCH):
            return 0
        return self._window - self.busy - self._startable

    @property
    def stuck(self) -> bool:
        """Whether every slot is taken by a handler that goes on although its message is not the worker's any more."""
        if self.busy < self.concurrency:
            return False
        return all(job.message != LEASED for job in self.held if job.slot == BUSY)

    def _start(self) -> Job:
        while (job := self._waiting.popleft()).slot != WAITING:
            pass
        job.slot = SLOT[WAITING]["start"]
        self._startable -= 1
        self.busy += 1
        return job

    def _settle(self) -> Settle | None:
        for verb, box in self._outbox.items():
            while box:
                part = [job for job in box[:BATCH] if job.message == DECIDED]
                del box[:BATCH]
                for job in part:
                    job.message = MESSAGE[DECIDED]["send"]
                if part:
                    self._settling = True
                    return Settle(verb, part)
        return None

    # --- events -----------------------------------------------------------------------------------------------------

    def arrived(self, deliveries: Iterable[DeliveryView]) -> None:
        """A read came back. After `stop` its messages go back at once."""
        self._reading = False
        jobs = [Job(delivery) for delivery in deliveries]
        self.held.update(jobs)
        self._waiting.extend(jobs)
        self._startable += len(jobs)
        if self.life not in (RUNNING, AWAY):
            self._let_go(jobs)

    def read_failed(self) -> None:
        """A read did not come back."""
        self._reading = False

    def ended(self, job: Job, outcome: Outcome) -> None:
        """A handler ended. What it came to counts only if nothing was decided, and the lease not lost, before."""
        job.slot = SLOT[job.slot]["end"]
        self.busy -= 1
        if job.message == LEASED:
            self._decide(job, outcome)
        elif job.message == GONE:
            self.held.discard(job)

    def decide(self, job: Job, outcome: Outcome) -> bool:
        """Settle *job* now, whatever its handler does. True if its handler is running and must be told."""
        if job.message != LEASED:
            return False
        self._decide(job, outcome)
        return job.slot == BUSY

    def lost(self, job: Job) -> bool:
        """The lease of *job* is over: it is never settled. True if its handler is running and must be told."""
        had = job.message
        job.message = MESSAGE[had]["lose"]
        if job.message == had:
            return False
        self._unsettled -= had == DECIDED
        if job.slot == WAITING:
            self._skip(job)
        if job.slot == FREE:
            self.held.discard(job)
        return job.slot == BUSY and had == LEASED  # one that was decided on was told then

    def settled(self, jobs: Iterable[Job]) -> None:
        """Redis was told, or it was too late for these."""
        self._settling = False
        for job in jobs:
            job.message = MESSAGE[job.message]["settled"]
            self._unsettled -= 1
            if job.slot == FREE:
                self.held.discard(job)

    def unsettled(self, jobs: Iterable[Job]) -> None:
        """Redis could not be told: these are to be sent again, but for those whose lease is over by now."""
        late = [job for job in jobs if job.delivery.remaining <= 0]
        again = [job for job in jobs if job not in late] if late else list(jobs)
        for job in again:
            job.message = MESSAGE[job.message]["unsettled"]
        if again and again[0].outcome:
            self._outbox[again[0].outcome.verb][:0] = again
        self.settled(late)

    def redis_fails(self) -> bool:
        """A call failed. True if that is news."""
        return self._change("Redis fails")

    def redis_answers(self) -> bool:
        """A call succeeded. True if that is news."""
        return self._change("Redis answers")

    def stop(self) -> bool:
        """Read no more, finish what runs, give back what waits. False if it was stopped before."""
        if not self._change("stop"):
            return False
        self._let_go(list(self._waiting))
        return True

    def grace_over(self) -> list[Job]:
        """Give back what is not done; those whose handlers must be told."""
        if not self._change("grace over"):
            return []
        for job in self._waiting:
            if job.slot == WAITING:
                self._give_back(job)
        return [job for job in self.held if self.decide(job, GIVE_BACK)]

    def give_up(self) -> list[Job]:
        """Stop now; what was not settled: its leases end by themselves."""
        self._change("give up")
        return [job for job in self.held if job.message in (LEASED, DECIDED, SENT)]

    # --- parts ------------------------------------------------------------------------------------------------------

    def _change(self, event: str) -> bool:
        before, self.life = self.life, LIFE[self.life].get(event, self.life)
        return self.life != before

    def _holds_nothing(self) -> bool:
        done = not (self._unsettled or self._reading or self._startable)
        return done and (self.life == RETURNING or not self.busy)

    def _decide(self, job: Job, outcome: Outcome) -> None:
        job.message = MESSAGE[job.message]["decide"]
        job.outcome = outcome
        self._unsettled += 1
        self._outbox[outcome.verb].append(job)

    def _let_go(self, jobs: Iterable[Job]) -> None:
        """Give back what waits, but not what would die of one more delivery: that is finished."""
        for job in jobs:
            last = self.max_deliveries is not None and job.delivery.count >= self.max_deliveries
            if job.slot == WAITING and (not last or self.life == RETURNING):
                self._give_back(job)

    def _give_back(self, job: Job) -> None:
        self._skip(job)
        self._decide(job, GIVE_BACK)

    def _skip(self, job: Job) -> None:
        job.slot = SLOT[WAITING]["let go"]
        self._startable -= 1
