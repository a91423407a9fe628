"""A worker as a state machine: events go in, actions come out. It has no I/O, no clock and no threads.

Three tables hold the transitions: those of the worker (LIFE), of each message that it holds (MESSAGE), and of the slot
that the message's handler takes (SLOT). A message and its slot have tables of their own because they end independently:
a handler may still run when its lease is lost, and a message may still wait to be settled when its handler has ended.
`docs/worker.md` draws the tables; `make diagrams` checks the drawing.

A runner (`shardq.worker.lane`) reports events (`arrived`, `ended`, `lost`, ...), and performs the actions that
`next` returns until that is None. Only one thread at a time may call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from shardq.model import DeliveryView
from shardq.ops.read.read import MAX_COUNT
from shardq.ops.settle.command import MAX_ACKS_A_CALL
from shardq.protocol.lease import deliveries_in
from shardq.worker.outcome import GIVE_BACK, Outcome, Verb
from shardq.worker.pace import Pace
from shardq.worker.slots import SlotShare

Table: TypeAlias = Mapping[str, Mapping[str, str]]

# States are strings, not an Enum, whose members are hashed in Python: each message makes five lookups.
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
"""The states of the worker. In AWAY Redis does not answer; the worker continues to try, and logs each change once."""

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
"""The states of a message that the worker holds. The first decision counts; a message whose lease is lost is GONE."""

WAITING: Final = "waiting"
BUSY: Final = "busy"
FREE: Final = "free"
SLOT: Final[Table] = {
    WAITING: {"start": BUSY, "let go": FREE},
    BUSY: {"end": FREE},
    FREE: {},
}
"""The states of the slot of a message's handler."""

MAX_SETTLED_A_CALL: Final = 500
"""How many messages are settled by one call, at most."""

MAX_PIGGYBACKED: Final = MAX_ACKS_A_CALL
"""How many acks are piggybacked on a read, at most: as many as go out in one round trip."""


def is_last(delivery: DeliveryView, most: int | None) -> bool:
    """Return whether this delivery is the last of *most*, so that the message dies if it is given back.

    Those before a redrive, which `delivery.count` has as well, do not count. *most* is None if it is not known.
    """
    return most is not None and deliveries_in(delivery.received.token) >= most


def is_of_newcomer(delivery: DeliveryView) -> bool:
    """Return whether a stream brought this message: its shard key has nothing else in flight or waiting."""
    received = delivery.received
    return received.count == 1 and received.stream is not None


class WorkerJob:
    """One delivery that the worker holds.

    `call`, `handle` and `tasks` are for the runner: what it calls; the handler's task or child process; and the tasks
    for which its thread waits. `started` and `ended` are when the handler started and ended, in seconds of the
    monotonic clock; 0 before, and while it waits for others of its batch. `charged` is for how many of these seconds
    its shard key was charged when its lease was extended. `batch` is for the keeper: the jobs whose leases are extended
    together with this one's. A job leaves it when its message is not leased any more. `members` is how many jobs share
    its time: those of a batch that one call handles.
    """

    __slots__ = (
        "batch", "call", "charged", "delivery", "ended", "handle", "members", "message", "outcome", "slot", "started",
        "tasks",
    )  # fmt: skip

    def __init__(self, delivery: DeliveryView) -> None:
        self.delivery = delivery
        self.message = LEASED
        self.slot = WAITING
        self.outcome: Outcome | None = None
        self.call: Any = None
        self.handle: Any = None
        self.started = self.ended = self.charged = 0.0
        self.members = 1
        self.batch: set[WorkerJob] = NO_BATCH
        self.tasks: set[Any] = NO_TASKS

    def took(self, now: float) -> float:
        """Return for how many seconds the handler has run by *now*, without those that were charged."""
        return max(0.0, (self.ended or now) - self.started - self.charged) if self.started else 0.0


NO_BATCH: Final[set[WorkerJob]] = set()
"""The batch of the jobs that are in none; it stays empty."""

NO_TASKS: Final[set[Any]] = set()
"""The tasks of the jobs that have none; it stays empty."""


class Read(NamedTuple):
    """Action: read up to `credit` messages, and wait for them; then call `arrived` or `read_failed`.

    `acks` are piggybacked on the read. When they are over, call `acked`, at the latest before the other event.
    """

    credit: int
    acks: Sequence[WorkerJob] = ()


class SettleJobs(NamedTuple):
    """Action: settle these messages in Redis; then call `settled` or `unsettled`. There is one at a time.

    Acks may be piggybacked on a read meanwhile.
    """

    verb: Verb
    jobs: list[WorkerJob]


class LookLater(NamedTuple):
    """Action: call `look` in this many seconds, and continue meanwhile. There is one at a time."""

    seconds: float


Action: TypeAlias = WorkerJob | Read | SettleJobs | LookLater
"""The next step of a runner. A Job means: run its handler, then call `ended`."""


def sum_of(tallies: Sequence[Mapping[Verb, int]]) -> Mapping[Verb, int]:
    """Return what several queues of one worker did in all."""
    return {verb: sum(tally[verb] for tally in tallies) for verb in tallies[0]}


class WorkerState:
    """The state of one worker. At most *concurrency* handlers run.

    While these are short, up to *read_ahead* more messages may wait for one. Behind a backlog a few longer ones do, too
    (`Pace`), and the next read waits until these have begun. With a *share* the slots are those of several queues: each
    message that was read has one until its handler has ended. Then nothing is read ahead, and messages for which there
    is no slot are given back at once.
    """

    def __init__(self, concurrency: int, read_ahead: int = 0, share: SlotShare | None = None) -> None:
        self.life = RUNNING
        self.concurrency = concurrency
        self.busy = 0
        self.held: set[WorkerJob] = set()
        """The jobs that are not finished: the message is not settled, or the handler still runs."""
        self.max_deliveries: int | None = None
        """The queue's setting, None until it is known."""
        self.pace = Pace(concurrency, read_ahead)
        self._most_held, self._share = max(concurrency + read_ahead, MAX_SETTLED_A_CALL), share
        self._looks = False  # whether a look is due; since it was asked for:
        self._has_begun = self._has_read = False  # whether a message that waited has begun, and whether a read has
        self._waiting: tuple[deque[WorkerJob], deque[WorkerJob]] = (
            deque(),
            deque(),
        )  # those that start first, the others
        self._startable = 0  # how many of the waiting jobs may still start
        self._outbox: dict[Verb, list[WorkerJob]] = {"ack": [], "nack": [], "reject": [], "give back": []}
        self.tally: dict[Verb, int] = {"ack": 0, "nack": 0, "reject": 0, "give back": 0}
        """How many messages were decided upon so far, by what was decided."""
        self._unsettled = 0
        self._piggybacked = 0  # how many of these are piggybacked on the read that is under way
        self._apart = False  # whether acks go out by themselves, because settling failed
        self._settling = False
        self.is_reading = False
        """Whether a read is under way, or about to begin."""

    # --- actions ----------------------------------------------------------------------------------------------------

    def next(self) -> Action | None:
        """The next action; None if there is nothing to do until the next event."""
        if self._startable and self.busy < self.concurrency:
            return self._start(self._line().popleft())
        if self.life == STOPPED:
            return None
        credit = 0 if self.is_reading else self.credit
        if not self._settling and (action := self._settle(leave_acks=credit > 0 or self._leaves_acks)):
            return action
        if credit > 0 and (read := self._read(min(credit, MAX_COUNT))):
            return read
        if self._is_look_due:
            self._looks, self._has_begun, self._has_read = True, False, False
            return LookLater(self.pace.patience)
        if self.life in (DRAINING, RETURNING) and self._holds_nothing():
            self._change("nothing held")
        return None

    @property
    def more(self) -> bool:
        """Whether `next` most likely has an action, so that it is worth waking one more thread."""
        return bool(
            (self._startable and self.busy < self.concurrency)
            or (not self._settling and self._unsettled > self._piggybacked + self._left)
            or (not self.is_reading and self.credit > 0)
            or self._is_look_due
        )

    @property
    def credit(self) -> int:
        """How many messages may be read now."""
        if self.life not in (RUNNING, AWAY) or self._unsettled > 2 * self._most_held:
            return 0
        if self._share is not None:
            return self._share.free()
        if self._startable and not self.pace.is_short:
            return 0  # the next read comes when what was read ahead has begun
        return self.concurrency + self.pace.ahead - self.busy - self._startable

    @property
    def _waits_ahead(self) -> bool:
        """Whether the next read waits until what was read ahead has begun."""
        return self._startable > 0 and self._share is None and not self.pace.is_short

    @property
    def _leaves_acks(self) -> bool:
        """Whether acks wait for the next read: messages read ahead begin before, or a read behind a backlog ends."""
        if self.pace.is_short or self._share is not None:
            return False
        return self._startable > 0 or (self.is_reading and self.pace.is_behind and self.life == RUNNING)

    @property
    def _left(self) -> int:
        """How many acks wait for the next read."""
        if self._apart or not self._leaves_acks:
            return 0
        acks = len(self._outbox["ack"])
        return acks if acks <= MAX_PIGGYBACKED else 0

    @property
    def _is_look_due(self) -> bool:
        return not self._looks and (self._waits_ahead or self._left > 0)

    @property
    def stuck(self) -> int:
        """How many handlers run, if the messages of all of them are lost or decided already; else 0."""
        return 0 if any(job.message == LEASED for job in self.held if job.slot == BUSY) else self.busy

    def start_async(self) -> Sequence[WorkerJob]:
        """Start the jobs that are next, as long as their calls are async: an event loop takes them all at once."""
        started = []
        while self._startable and self.busy < self.concurrency and (line := self._line())[0].call.is_async:
            started.append(self._start(line.popleft()))
        return started

    def _line(self) -> deque[WorkerJob]:
        """Return the waiting jobs; the first one is next. There is one that may start."""
        first, others = self._waiting
        while (line := first or others)[0].slot != WAITING:
            line.popleft()
        return line

    def _start(self, job: WorkerJob) -> WorkerJob:
        job.slot = SLOT[WAITING]["start"]
        self._startable -= 1
        self.busy += 1
        self._has_begun = True
        return job

    def _read(self, credit: int) -> Read | None:
        if self._share is not None:
            credit = self._share.take(credit)
        if not credit:
            return None
        self.is_reading = self._has_read = True
        self.pace.reads(credit)
        return Read(credit, self._take_along())

    def _settle(self, *, leave_acks: bool) -> SettleJobs | None:
        """Settle what waits. With *leave_acks*, a few acks are left for the read that comes next."""
        for verb, box in self._outbox.items():
            if verb == "ack" and leave_acks and not self._apart and len(box) <= MAX_PIGGYBACKED:
                continue
            while box:
                if part := self._send(box, MAX_SETTLED_A_CALL):
                    self._settling = True
                    return SettleJobs(verb, part)
        return None

    def _take_along(self) -> Sequence[WorkerJob]:
        if self._apart or not (jobs := self._send(self._outbox["ack"], MAX_PIGGYBACKED)):
            return ()
        self._piggybacked = len(jobs)
        return jobs

    def _send(self, box: list[WorkerJob], most: int) -> list[WorkerJob]:
        """Take up to *most* messages out of *box*, without those whose leases were lost meanwhile."""
        part = [job for job in box[:most] if job.message == DECIDED]
        del box[:most]
        for job in part:
            job.message = MESSAGE[DECIDED]["send"]
        return part

    # --- events -----------------------------------------------------------------------------------------------------

    def arrived(self, deliveries: Iterable[DeliveryView], took: float = 0.0) -> list[WorkerJob]:
        """Event: a read returned after *took* seconds. After `stop` its messages are given back. Return all jobs."""
        self.is_reading = False
        jobs = [WorkerJob(delivery) for delivery in deliveries]
        self.pace.has_read(len(jobs))
        over = self._share.came(len(jobs), took) if self._share is not None else 0
        self.held.update(jobs)
        first, others = self._waiting
        for job in jobs:
            (first if is_of_newcomer(job.delivery) else others).append(job)
        self._startable += len(jobs)
        self._let_go(jobs[len(jobs) - over :] if self.life in (RUNNING, AWAY) else jobs)
        return jobs

    def read_failed(self) -> None:
        """Event: a read failed."""
        self.is_reading = False
        self.pace.has_read(0)
        if self._share is not None:
            self._share.failed()

    def ended(self, job: WorkerJob, outcome: Outcome) -> None:
        """Event: a handler ended. Its outcome counts only if nothing was decided before and the lease is not lost."""
        job.slot = SLOT[job.slot]["end"]
        self.busy -= 1
        if self._share is not None:
            self._share.give(1)
        took = job.ended - job.started if job.started else 0.0  # a process that did not start took none
        self.pace.has_ended(took)
        if job.message == LEASED:
            self._decide(job, outcome)
        elif job.message == GONE:
            self.held.discard(job)

    def look(self) -> None:
        """Event: the look that was asked for is due.

        If nothing has begun since, messages that were read ahead are given back.

        Handlers may hang here while other workers are free. Acks that still wait for a read go out by themselves.
        """
        self._looks = False
        if self._waits_ahead and not self._has_begun:
            self._let_go(list(chain(*self._waiting)))
            self.pace.has_waited(in_vain=True)
        elif self._has_begun:
            self.pace.has_waited(in_vain=False)
        if self._outbox["ack"] and not self._has_read:
            self._apart = True

    def decide(self, job: WorkerJob, outcome: Outcome) -> bool:
        """Settle *job* now, although its handler has not ended. True if the handler runs and must be interrupted."""
        if job.message != LEASED:
            return False
        self._decide(job, outcome)
        return job.slot == BUSY

    def lost(self, job: WorkerJob) -> bool:
        """Event: the lease of *job* is over. It is never settled. True if the handler runs and must be interrupted."""
        had = job.message
        job.message = MESSAGE[had]["lose"]
        job.batch.discard(job)
        if job.message == had:
            return False
        self._unsettled -= had == DECIDED
        if job.slot == WAITING:
            self._skip(job)
        if job.slot == FREE:
            self.held.discard(job)
        return job.slot == BUSY and had == LEASED  # a handler whose message was decided was interrupted then

    def settled(self, jobs: Iterable[WorkerJob]) -> None:
        """Event: these messages are settled, or their leases had ended."""
        self._settling = self._apart = False
        self._finish(jobs)

    def unsettled(self, jobs: Iterable[WorkerJob]) -> None:
        """Event: these messages could not be settled. They are sent again, except those whose lease is over by now."""
        self._settling = False
        self._send_again(jobs)

    def acked(self, jobs: Sequence[WorkerJob]) -> Sequence[WorkerJob]:
        """Event: a read with these piggybacked acks has done what it could. Return those that were answered.

        The others are sent again. They and those after them go out by themselves until that works: reads must not fail
        because acks do.
        """
        self._piggybacked = 0
        if again := [job for job in jobs if not job.delivery.answered]:
            self._send_again(again)
        answered = [job for job in jobs if job.delivery.answered] if again else jobs
        self._finish(answered)
        return answered

    def _finish(self, jobs: Iterable[WorkerJob]) -> None:
        for job in jobs:
            job.message = MESSAGE[job.message]["settled"]
            self._unsettled -= 1
            if job.slot == FREE:
                self.held.discard(job)

    def _send_again(self, jobs: Iterable[WorkerJob]) -> None:
        self._apart = True
        late = [job for job in jobs if job.delivery.remaining <= 0]
        again = [job for job in jobs if job not in late] if late else list(jobs)
        for job in again:
            job.message = MESSAGE[job.message]["unsettled"]
        if again and again[0].outcome:
            self._outbox[again[0].outcome.verb][:0] = again
        self._finish(late)

    def redis_fails(self) -> bool:
        """Event: a call failed. True if the worker's state changed."""
        return self._change("Redis fails")

    def redis_answers(self) -> bool:
        """Event: a call succeeded. True if the worker's state changed."""
        return self._change("Redis answers")

    def stop(self) -> bool:
        """Stop reading, finish the handlers that run, give back what waits. False if it was stopped before."""
        if not self._change("stop"):
            return False
        self._let_go(list(chain(*self._waiting)))
        return True

    def grace_over(self) -> list[WorkerJob]:
        """Give back what is not done; the jobs whose handlers must be interrupted."""
        if not self._change("grace over"):
            return []
        for job in chain(*self._waiting):
            if job.slot == WAITING:
                self._give_back(job)
        return [job for job in self.held if self.decide(job, GIVE_BACK)]

    def give_up(self) -> list[WorkerJob]:
        """Stop now; the jobs that were not settled, whose leases will end by themselves."""
        self._change("give up")
        return [job for job in self.held if job.message in (LEASED, DECIDED, SENT)]

    # --- parts ------------------------------------------------------------------------------------------------------

    def _change(self, event: str) -> bool:
        before, self.life = self.life, LIFE[self.life].get(event, self.life)
        return self.life != before

    def _holds_nothing(self) -> bool:
        done = not (self._unsettled or self.is_reading or self._startable)
        return done and (self.life == RETURNING or not self.busy)

    def _decide(self, job: WorkerJob, outcome: Outcome) -> None:
        job.message = MESSAGE[job.message]["decide"]
        job.batch.discard(job)
        job.outcome = outcome
        self.tally[outcome.verb] += 1
        self._unsettled += 1
        self._outbox[outcome.verb].append(job)

    def _let_go(self, jobs: Iterable[WorkerJob]) -> None:
        """Give back the jobs that wait."""
        for job in jobs:
            if job.slot == WAITING:
                self._give_back(job)

    def _give_back(self, job: WorkerJob) -> None:
        self._skip(job)
        self._decide(job, GIVE_BACK)

    def _skip(self, job: WorkerJob) -> None:
        job.slot = SLOT[WAITING]["let go"]
        self._startable -= 1
        if self._share is not None:
            self._share.give(1)
