"""The purgatory: operations that wait for a condition or for a timeout, watched under keys.

An operation is tried when something happens under one of its keys (`check`). It completes when its condition holds,
when somebody completes it, or when its timer rings: exactly once, whichever is first, on whatever thread::

    class Fetch(Operation):
        def ready(self): return log.size >= self.wanted
        def on_complete(self): self.respond()

    purgatory = Purgatory(timer)
    purgatory.watch(Fetch(...), keys=["partition-1", "partition-2"], timeout=0.5)
    purgatory.check("partition-1")      # when something was appended to it

**Nothing is kept of a completed operation.** It leaves the timer and all of its watch lists at once, since a watch list
is a dict, from which it goes in O(1). Kafka cannot do that with the linked lists of its watchers, so it estimates how
many completed operations are left in them and purges by a scan. Measured (`benchmarks/timing.py`), the scan costs more
than removing, and holds up to a thousand operations with all that they refer to (KAFKA-19763: out of memory).

**Exactly once**: the table of pending operations decides. Taking an operation out of it is atomic, and who took it out
completes it. Hence `len` is exact too.

**No lost wake-up**: an operation is tried, then watched, then tried again; so an event between the first try and the
watching is seen by the second. One thread tries it at a time; one that finds it busy leaves word, and it is tried
again.

**No chain grows the stack**: what an operation's `on_complete` completes, by whatever way, is taken out at once; its
own `on_complete` is called when this one has returned, on the same thread. So any number of operations may complete one
another in a row.

**No lock is held while an operation's own code runs**, so that may check other keys, complete other operations and take
locks of its own (KAFKA-3994 was a deadlock of this kind).

Source: Kafka's "Purgatory Redesign Proposal" (Matsuda, 2015) and `DelayedOperationPurgatory`.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Hashable, Iterable
from threading import Lock
from typing import Final

from shardq.errors import ConfigError
from shardq.timing.entry import Entry
from shardq.timing.timer import Timer

log = logging.getLogger("shardq")

_NOT_WATCHED: Final = "an operation can be watched by one purgatory, once at a time"


class Operation(Entry):
    """What waits. Subclasses say when it is `ready`, and what is to happen then."""

    __slots__ = ("_again", "_purgatory", "_trying")

    _again: bool  # set by whoever finds somebody else trying

    def __init__(self) -> None:
        self.bucket = None
        self._purgatory: Purgatory | None = None
        self._trying = Lock()

    def ready(self) -> bool:
        """Whether the condition holds. Never called by two threads at once; not called again after True."""
        return False

    def on_complete(self) -> None:
        """Called once, whether by the condition, by force or by the timeout; after that of an operation that did it."""

    def on_expire(self) -> None:
        """Called after `on_complete` if it was the timeout."""

    def complete(self) -> bool:
        """Complete by force; whether this call did it. False too if no purgatory watches the operation."""
        return self._complete(expired=False)

    def cancel(self) -> bool:
        """Leave the purgatory uncompleted; whether this call did it."""
        purgatory = self._purgatory
        return purgatory is not None and purgatory._take_out(self)

    def fire(self) -> None:
        """The timer's call: the timeout is over."""
        self._complete(expired=True)

    def _complete(self, *, expired: bool) -> bool:
        purgatory = self._purgatory
        if purgatory is None or not purgatory._take_out(self):
            return False
        _told.tell(self, expired)
        return True

    def _tell(self, expired: bool) -> None:
        self.on_complete()
        if expired:
            self.on_expire()


class _Told(threading.local):
    """Tells operations that they are complete: on each thread one by one, however they complete one another."""

    def __init__(self) -> None:
        self._later: deque[tuple[Operation, bool]] | None = None  # None while no operation is told anything

    def tell(self, operation: Operation, expired: bool) -> None:
        """Now, or after what is told now. The first one's error comes out, a later one's is logged."""
        if self._later is not None:
            self._later.append((operation, expired))
            return
        later = self._later = deque()
        try:
            try:
                operation._tell(expired)
            finally:
                _tell_each(later)
        finally:
            self._later = None


def _tell_each(later: deque[tuple[Operation, bool]]) -> None:
    end: BaseException | None = None
    while later:
        operation, expired = later.popleft()
        try:
            operation._tell(expired)
        except Exception:
            log.exception("an operation failed when it completed")
        except BaseException as error:  # noqa: BLE001 (the others are told before it goes on)
            end = error
    if end is not None:
        raise end


_told = _Told()


class Purgatory:
    """Operations by the keys they are watched under. Safe across threads; not from finalizers and signal handlers."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._pending: dict[Operation, tuple[Hashable, ...]] = {}
        self._watchers: dict[Hashable, dict[Operation, None]] = {}
        self._lock = Lock()  # of the watch lists

    def watch(self, operation: Operation, keys: Iterable[Hashable], timeout: float | None) -> bool:
        """Try `operation`; if it is not ready, watch it for `timeout` seconds (None: for ever). Whether it is complete.

        An error of its own code comes out here, and the operation is not watched then.
        """
        if operation._purgatory is not None:
            raise ConfigError(_NOT_WATCHED)
        operation._purgatory = self
        self._pending[operation] = keys = tuple(keys)
        try:
            if operation.ready() and operation.complete():  # nobody else can try it yet
                return True
            self._add_watcher(operation, keys)
            if self._try(operation):
                return True
            if timeout is not None:
                self._timer.insert(operation, timeout)
        except BaseException:
            self._take_out(operation)
            raise
        if operation in self._pending:
            return False
        operation.leave()  # completed just before it came into the timer
        return True

    def check(self, key: Hashable, limit: int | None = None) -> int:
        """Try the operations watched under `key`, the longest waiting first; how many completed by that.

        At most `limit` of them are. The error of one is logged, and the others are tried. Hold no lock that their code
        could want.
        """
        done = 0
        for operation in self.watched_under(key):
            if done == limit:
                break
            try:
                done += self._try(operation)
            except Exception:
                log.exception("an operation failed when it was tried")
        return done

    def cancel_for_key(self, key: Hashable) -> list[Operation]:
        """Take out every operation watched under `key`, uncompleted; those operations."""
        return [operation for operation in self.watched_under(key) if self._take_out(operation)]

    def watched_under(self, key: Hashable) -> tuple[Operation, ...]:
        """The operations that wait under `key`, the longest waiting first."""
        with self._lock:
            return tuple(self._watchers.get(key, ()))

    def __len__(self) -> int:
        """How many operations wait."""
        return len(self._pending)

    def __bool__(self) -> bool:
        return True

    @property
    def watched(self) -> int:
        """How many places in watch lists are taken: one per waiting operation and key."""
        with self._lock:
            return sum(map(len, self._watchers.values()))

    def _try(self, operation: Operation) -> bool:
        """Complete `operation` if it is ready; whether this call did it."""
        while operation in self._pending:
            if not operation._trying.acquire(False):
                operation._again = True  # somebody's look may be older than what made us come: it must look again ...
                if operation._trying.locked():
                    return False
                continue  # ... unless it was finished before it could see that
            ready, failure = False, None
            try:
                operation._again = False
                ready = operation.ready()
            except Exception as error:  # noqa: BLE001 (raised below, unless it is to look again)
                failure = error
            finally:
                operation._trying.release()
            if ready:
                return operation.complete()
            if not operation._again:
                if failure:
                    raise failure
                return False
        return False

    def _take_out(self, operation: Operation) -> bool:
        """Forget `operation`; True for the one caller that did."""
        keys = self._pending.pop(operation, None)
        if keys is None:
            return False
        operation._purgatory = None
        operation.leave()
        with self._lock:
            for key in keys:
                watchers = self._watchers.get(key)
                if watchers is not None and watchers.pop(operation, True) is None and not watchers:
                    del self._watchers[key]
        return True

    def _add_watcher(self, operation: Operation, keys: tuple[Hashable, ...]) -> None:
        with self._lock:
            if operation not in self._pending:
                return  # completed by force meanwhile: nobody would take it out again
            for key in keys:
                watchers = self._watchers.get(key)
                if watchers is None:
                    self._watchers[key] = {operation: None}
                else:
                    watchers[operation] = None
