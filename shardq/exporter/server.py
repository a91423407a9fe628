"""Whether Redis answers, by how calls ended; and who may make one while it does not.

Calls that wait for a server that is away cost seconds each, and a page takes many calls. So while Redis is known to be
away, one at a time tries to reach it, at most once a second, and all others get its last answer at once.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import re
import threading
from collections.abc import Iterator
from typing import Final, NamedTuple

from shardq.client import Client
from shardq.clock import Clock
from shardq.errors import BackendTimeout, ShardqError
from shardq.exporter.answers import HttpAnswer
from shardq.exporter.errors import NO_ANSWER, is_answer, is_away, public_text
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.steps import Ask, Op
from shardq.outlook.facts import ServerMemory
from shardq.outlook.server import memory_of

PATIENCE: Final = 2.0
"""Seconds within which Redis has to answer."""
RETRY: Final = 1.0
"""Seconds after a call that Redis did not answer until another may try."""
READY_SECONDS: Final = 5.0
"""Seconds within which Redis has answered if it is ready."""
FRESH_SECONDS: Final = 5.0
"""Seconds for which what a server tells of itself counts as of now."""

log = logging.getLogger("shardq.exporter")


class Gate:
    """Notes how calls end, and lets them through. Answers from here are noted *above*, too."""

    def __init__(self, clock: Clock, above: Gate | None = None) -> None:
        self._clock, self._above = clock, above
        self.patience: float = PATIENCE if above is None else above.patience
        """Seconds within which Redis has to answer a call."""
        self._lock, self._trying = threading.Lock(), threading.Lock()
        self._answered_at: float | None = None
        self._failed_at = 0.0
        self._error: ShardqError | None = None

    @property
    def error(self) -> ShardqError | None:
        """The error with which the last call showed that Redis is away; None: it answers, or was not asked yet."""
        return self._error

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Note how the call ends that is made within this context. Raise at once if Redis is known to be away."""
        is_trying = self._admit()
        try:
            yield
        except ShardqError as error:
            self.note(error)
            raise
        else:
            self.note(None)
        finally:
            if is_trying:
                self._trying.release()

    def note(self, error: ShardqError | None) -> None:
        """Note how a call ended: a refusal is an answer, too, unless the server knows no such user.

        An error that says nothing of Redis is not noted.
        """
        if error is not None and not is_away(error):
            if not is_answer(error):
                return
            error = None
        with self._lock:
            before, self._error = self._error, error and _copied(error)
            is_first = self._answered_at is None
            if error is None:
                self._answered_at = self._clock.monotonic()
            else:
                self._failed_at = self._clock.monotonic()
            if _why(before) != _why(error):
                self._tell(error, is_first=is_first)
        if error is None and self._above is not None:
            self._above.note(None)

    def require(self) -> None:
        """Raise the error that shows that Redis is away, if no call may try it now."""
        error = self._error
        if error is not None and (self._clock.monotonic() - self._failed_at < RETRY or self._trying.locked()):
            raise _copied(error)

    def answered_within(self, seconds: float) -> bool:
        """Say whether Redis has answered a call in the last *seconds*."""
        return self._answered_at is not None and self._clock.monotonic() - self._answered_at < seconds

    def _admit(self) -> bool:
        """Let a call through; return whether it is the one that tries whether Redis is back."""
        error = self._error
        if error is None:
            return False
        if self._clock.monotonic() - self._failed_at >= RETRY and self._trying.acquire(blocking=False):
            return True
        raise _copied(error)

    def _tell(self, error: ShardqError | None, *, is_first: bool) -> None:
        """Tell of a change: Redis is away, as *error* shows, or it answers; if *is_first*, for the first time."""


class ServerNumbers(Gate):
    """The Redis of a poller. That it goes away, and that it is back, is logged unless *is_logged* is False."""

    def __init__(self, client: Client, clock: Clock, *, is_logged: bool = True) -> None:
        super().__init__(clock)
        self._client, self._is_logged = client, is_logged
        self._first = threading.Lock()
        self.node: HttpAnswer[ServerNode] = HttpAnswer(self._ask_node, FRESH_SECONDS, clock)

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Do as a gate does. A client waits for its first connection, so one call at a time makes that."""
        self.begin()
        with super().call():
            yield

    def begin(self) -> None:
        """Reach Redis, if it has not answered yet. Raise why it cannot be reached."""
        if self._answered_at is None:
            self.probe()

    def probe(self) -> None:
        """Ask whether Redis is there. Those that come meanwhile get the same answer."""
        if self.error is not None:
            self._ping()
            return
        with self._first:
            if not self.answered_within(RETRY):
                self._ping()

    def is_ready(self) -> bool:
        """Say whether Redis answered in the last 5 s; it is asked if nobody asked it."""
        if not self.answered_within(READY_SECONDS - self.patience):
            with contextlib.suppress(ShardqError):
                self.probe()
        return self.answered_within(READY_SECONDS)

    def why_not(self) -> str:
        """Return why Redis is not ready, in a text that all may hear."""
        return NO_ANSWER if self.error is None else public_text(self.error)

    def _ping(self) -> None:
        with contextlib.suppress(ShardqError), super().call():
            until = self._clock.monotonic() + self.patience
            self._client.run(retry_until(always(Ask(("PING",), "shardq")), until, self._clock))
        if (error := self.error) is not None:
            raise _copied(error)

    def _ask_node(self) -> ServerNode:
        with self.call():
            return self._client.run(node_of("shardq", self.patience, self._clock))

    def _tell(self, error: ShardqError | None, *, is_first: bool) -> None:
        if not self._is_logged:
            return
        if error is None:
            log.info("Redis answers%s", "" if is_first else " again")
        elif isinstance(error, BackendTimeout):
            log.warning("Redis is away, and nothing is exported until it is back: %s", error)
        else:
            log.warning("nothing is exported until this is mended: %s", error)


def _copied(error: ShardqError) -> ShardqError:
    """Return an error of one's own: one that is kept, or raised in many threads, would collect tracebacks."""
    copied = copy.copy(error)
    copied.__cause__ = error.__cause__
    return copied


def _why(error: ShardqError | None) -> str:
    return "" if error is None else public_text(error)


class ServerNode(NamedTuple):
    """A server of Redis: the id of its process, and its memory if it tells of that."""

    run_id: str
    memory: ServerMemory | None


def node_of(key: str, patience: float, clock: Clock) -> Op[ServerNode]:
    """Ask the server that has *key* for its memory, for *patience* seconds."""
    command = Ask(("INFO", "server", "memory", "errorstats"), key)
    info = yield from retry_until(always(command), clock.monotonic() + patience, clock)
    found = re.search(rb"^run_id:(\w+)", info, re.MULTILINE) if isinstance(info, bytes) else None
    return ServerNode(found[1].decode() if found else "", memory_of(info) if found else None)
