"""The purgatory: operations that wait for a condition or for a timeout, watched under keys.

A purgatory tries an operation when something happens under one of its keys (`check`). The operation completes when its
condition holds, when somebody completes it, or when its timeout is over. It completes exactly once, by whichever comes
first, on the thread on which that happens::

    class Fetch(Operation):
        def ready(self): return log.size >= self.wanted
        def on_complete(self): self.respond()

    purgatory = Purgatory(timer)
    purgatory.watch(Fetch(...), keys=["partition-1", "partition-2"], timeout=0.5)
    purgatory.check("partition-1")      # when something was appended to it

**Nothing is kept of a completed operation.** It leaves the timer and all of its watch lists at once. A watch list is a
dict, so that takes O(1). Kafka's watch lists are linked lists, from which it cannot remove an operation so. It
estimates how many completed operations are in them, and purges them by a scan. Until then up to a thousand completed
operations stay, with all that they refer to (KAFKA-19763: out of memory).

**Exactly once.** There is one table of pending operations. To take an operation out of it is atomic, and the thread
that took it out completes it. So `len` is exact, too.

**No lost wake-up.** An operation is tried, then put in the watch lists, then tried again. If its event comes between
the first try and the watch lists, the second try sees it. Only one thread at a time tries an operation. A thread that
finds another one trying sets a flag, and the other one tries once more.

**Completing one another does not grow the stack.** When `on_complete` of one operation completes another one, that one
is taken out at once, but its own `on_complete` is called after the first has returned, on the same thread. So any
number of operations may complete one another in a row.

**No lock is held while the code of an operation runs.** So that code may check other keys, complete other operations
and take locks of its own (KAFKA-3994 was a deadlock of this kind).

Source: Kafka's "Purgatory Redesign Proposal" (Matsuda, 2015) and `DelayedOperationPurgatory`.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
from collections import deque
from collections.abc import Hashable, Iterable
from threading import Lock

from shardq.arguments import iterable, of_type, seconds, whole
from shardq.errors import ConfigError
from shardq.timing.entry import Entry
from shardq.timing.timer import Timer

log = logging.getLogger("shardq")


class Operation(Entry):
    """An operation that waits. Subclasses define when it is `ready`, and what happens then."""

    __slots__ = ("_again", "_purgatory", "_trying")

    _again: bool  # set by a thread that finds another one trying

    def __init__(self) -> None:
        self.bucket = None
        self._purgatory: Purgatory | None = None
        self._trying = Lock()

    def ready(self) -> bool:
        """Whether the condition holds. Never called by two threads at once; not called again after True."""
        return False

    def on_complete(self) -> None:
        """Called once, after the condition, `complete` or the timeout completed the operation."""

    def on_expire(self) -> None:
        """Called after `on_complete` if the timeout completed the operation."""

    def complete(self) -> bool:
        """Complete the operation; True if this call did. False also if no purgatory watches it."""
        return self._complete(expired=False)

    def cancel(self) -> bool:
        """Leave the purgatory without completing; True if this call took the operation out."""
        purgatory = self._purgatory
        return purgatory is not None and purgatory._take_out(self)

    def fire(self) -> None:
        """Complete, because the timeout is over. The timer calls this."""
        self._complete(expired=True)

    def _complete(self, *, expired: bool) -> bool:
        purgatory = self._purgatory
        if purgatory is None or not purgatory._take_out(self):
            return False
        _completions.call(self, expired)
        return True

    def _call_back(self, expired: bool) -> None:
        self.on_complete()
        if expired:
            self.on_expire()


class _Completions(threading.local):
    """Calls `on_complete` of completed operations, on each thread one after the other."""

    def __init__(self) -> None:
        self._later: deque[tuple[Operation, bool]] | None = None  # None while no `on_complete` is being called

    def call(self, operation: Operation, expired: bool) -> None:
        """Call it now, or after the one that is being called. The first one's error is raised, others are logged."""
        if self._later is not None:
            self._later.append((operation, expired))
            return
        later = self._later = deque()
        try:
            try:
                operation._call_back(expired)
            finally:
                _call_each(later)
        finally:
            self._later = None


def _call_each(later: deque[tuple[Operation, bool]]) -> None:
    end: BaseException | None = None
    while later:
        operation, expired = later.popleft()
        try:
            operation._call_back(expired)
        except Exception:
            log.exception("an operation failed when it completed")
        except BaseException as error:  # noqa: BLE001 (raised after the others have been called)
            end = error
    if end is not None:
        raise end


_completions = _Completions()


def _hashable(key: Hashable) -> Hashable:
    try:
        hash(key)
    except Exception:  # noqa: BLE001 (somebody else's hash)
        raise ConfigError(f"a key must be one that can be hashed, not a {type(key).__name__}") from None
    return key


class Purgatory:
    """Operations and the keys under which they are watched. For any thread; not for finalizers and signal handlers."""

    def __init__(self, timer: Timer) -> None:
        self._timer = of_type("timer", timer, Timer, "a shardq.timing.Timer")
        self._pending: dict[Operation, tuple[Hashable, ...]] = {}
        self._watchers: dict[Hashable, dict[Operation, None]] = {}
        self._lock = Lock()  # guards the watch lists

    def watch(self, operation: Operation, keys: Iterable[Hashable], timeout: float | None) -> bool:
        """Try `operation`; if it is not ready, watch it for `timeout` seconds (None: for ever). True if it completed.

        If the operation's own code fails, its error is raised here, and the operation is not watched.
        """
        of_type("operation", operation, Operation, "a shardq.timing.Operation")
        if timeout is not None:
            seconds("timeout", timeout, -math.inf, sys.float_info.max)
        if operation._purgatory is not None:
            raise ConfigError("an operation can be watched by one purgatory, once at a time")
        keys = tuple(map(_hashable, iterable("keys", keys, "keys that can be hashed")))
        operation._purgatory = self
        self._pending[operation] = keys
        try:
            if operation.ready() and operation.complete():  # no other thread can try it yet
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
        operation.leave()  # another thread completed it just before the timer had it
        return True

    def check(self, key: Hashable, limit: int | None = None) -> int:
        """Try the operations watched under `key`, those that wait longest first; return how many completed by that.

        Stops when `limit` of them completed. If one fails, its error is logged, and the others are tried. The caller
        must not hold a lock that the operations' code takes.
        """
        if limit is not None:
            whole("limit", limit, 0, 2**63)
        done = 0
        for operation in self.watched_under(key):
            if done == limit:
                break
            try:
                done += self._try(operation)
            except Exception:
                log.exception("an operation failed when it was tried")
        return done

    def watched_under(self, key: Hashable) -> tuple[Operation, ...]:
        """The operations that wait under `key`, those that wait longest first."""
        with self._lock:
            try:
                return tuple(self._watchers.get(key, ()))
            except Exception:
                _hashable(key)  # which tells what is wrong with it
                raise

    def __len__(self) -> int:
        """How many operations wait."""
        return len(self._pending)

    def __bool__(self) -> bool:
        return True

    @property
    def watched(self) -> int:
        """How many entries the watch lists have: one for each waiting operation and each of its keys."""
        with self._lock:
            return sum(map(len, self._watchers.values()))

    def _try(self, operation: Operation) -> bool:
        """Complete `operation` if it is ready; True if this call did."""
        while operation in self._pending:
            if not operation._trying.acquire(False):
                operation._again = True  # the other thread may have looked before our event, so it must look again ...
                if operation._trying.locked():
                    return False
                continue  # ... unless it ended before it saw the flag
            ready, failure = False, None
            try:
                operation._again = False
                ready = operation.ready()
            except Exception as error:  # noqa: BLE001 (raised below, unless it looks again)
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
        """Forget `operation`; True if this call did."""
        keys = self._pending.pop(operation, None)
        if keys is None:
            return False
        operation._purgatory = None
        if operation.bucket is not None:
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
                return  # `complete` was called meanwhile: nobody would take it out of the watch lists
            for key in keys:
                self._watchers.setdefault(key, {})[operation] = None
