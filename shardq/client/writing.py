"""The common part of `Writer` and `AsyncWriter`: the window, the checks, and the failures that nobody asked for."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Mapping
from threading import Lock
from typing import Any, Final, NamedTuple, Protocol

from shardq.arguments import function, whole
from shardq.client.base import BaseClient
from shardq.client.kept import MAX_MISSING
from shardq.errors import BackendError, ClosedError, ConfigError, DurabilityUnknown, PartlyWritten
from shardq.flow import Limit, Vegas
from shardq.model.message import OnConflict
from shardq.ops.queue.opening import open_queue
from shardq.ops.queue.outcome import outcome_of
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.write.outgoing import CHUNK_MESSAGES, Outgoing, compose
from shardq.ops.write.window import Window
from shardq.telemetry.gate import watched
from shardq.telemetry.telemetry import OpenWrite

log = logging.getLogger("shardq")
MIN_AHEAD: Final = 16
MAX_FAILURES_KEPT: Final = 1000
"""Failures that are kept though nobody asked for them; more are counted."""

MAX_IN_FLIGHT, MAX_BYTES = 10_000, 64 * 1024 * 1024
NO_ROOM: Final = "the writer's window stayed full, so this message was not accepted: write it later"


class AskedWrite(Protocol):
    """A future of either kind, which knows whether somebody has asked for its outcome."""

    asked: bool
    error: Exception | None


class Order(NamedTuple):
    """A checked message on its way: where it goes, until when it is tried, and what must keep its order."""

    state: QueueState
    message: Outgoing
    until: float
    lane: bytes
    told: OpenWrite | None


class BaseWriter:
    """The window of a writer, and what became of its messages. `Client.writer` documents the settings."""

    def __init__(self, client: BaseClient, *, max_in_flight: int, max_bytes: int, limit: Limit | None = None) -> None:
        whole("max_in_flight", max_in_flight, MIN_AHEAD, 1_000_000)
        whole("max_bytes", max_bytes, 1, 2**40)
        one_call = CHUNK_MESSAGES  # while a call is under way, the next one should be waiting
        adapting = Vegas(first=MIN_AHEAD, least=MIN_AHEAD, most=max_in_flight, low=one_call, high=2 * one_call)
        self._base, self._pid = client, os.getpid()
        if limit is not None:
            function("limit.acked", getattr(limit, "acked", None))
        self._window = Window(adapting if limit is None else limit, max_bytes)
        self._states: dict[str, QueueState] = {}
        self._unopened: dict[QueueState, int] = {}  # how many messages wait until it is known which partitions it has
        self._failed: deque[AskedWrite] = deque()
        self._uncounted = 0
        self._lock = Lock()
        self._closed = False

    def __len__(self) -> int:
        """How many messages are accepted and have no known outcome yet."""
        return len(self._window)

    def __bool__(self) -> bool:
        """A writer is true, also when nothing is under way: `writer or client.writer()` keeps the one it has."""
        return True

    def _order(
        self,
        queue: Any,
        payload: Any,
        shard_key: str | bytes,
        options: tuple[float | None, float | None, str | None, Mapping[str, str] | None, str | None],
        on_conflict: OnConflict,
        timeout: float | None,
    ) -> Order:
        """Check and encode a message. ConfigError or CodecError if it is bad."""
        if self._closed or self._pid != os.getpid():
            raise ClosedError("this writer was closed, or made before a fork: make a new one with client.writer()")
        state = self._state(queue)
        until = state.until(timeout)
        told = self._base.telemetry_of(state).begin_write() if watched() else None
        try:
            context = told.context if told is not None else None
            composed = compose(state, self._base.codecs, payload, shard_key, *options, on_conflict, context)
        except BaseException as error:
            end_write(told, error)
            raise
        lane = shard_key if isinstance(shard_key, bytes) else shard_key.encode()
        return Order(state, composed, until, lane, told)

    def _state(self, queue: Any) -> QueueState:
        if isinstance(queue, str):
            state = self._states.get(queue)
            if state is None:
                if len(self._states) >= MAX_MISSING:
                    self._states.clear()  # the client knows those that are there
                state = self._base.state_of(queue, {})
                self._take(queue, state)
            return state
        if getattr(queue, "client", None) is not self._base:
            raise ConfigError("queue must be the name of a queue, or a queue of the client that made this writer")
        if self._states.get(queue.name) is not queue.state:
            self._take(queue.name, queue.state)
        return queue.state  # type: ignore[no-any-return]

    def _take(self, name: str, state: QueueState) -> None:
        """Note the queue of a first message."""
        with self._lock:
            self._states[name] = state
            self._unopened.setdefault(state, 0)

    def _opened(self, state: QueueState, until: float) -> Op[None]:
        """Open the queue of a first message, or make it, before that is written: later ones would overtake it.

        Those go to the home of their shard key by themselves, once it is known where that is. The write reports a
        failure here; ConfigError for settings that a queue with partitions cannot have.
        """
        with self._lock:
            if state not in self._unopened:
                return
            self._unopened[state] += 1
        try:
            is_to_make = state.creates and state.parts is None and state.requested.partitions != 1
            outcome = yield from outcome_of(self._made(state, until) if is_to_make else open_queue(state, until))
            if is_to_make and isinstance(outcome, ConfigError):
                raise outcome
        finally:
            with self._lock:
                self._unopened[state] -= 1
                if not self._unopened[state]:
                    del self._unopened[state]

    def _made(self, state: QueueState, until: float) -> Op[object]:
        from shardq.partitions.parts import open_parts  # few programs have any

        return open_parts(state, self._base.state_of_part, self._base.codecs, until, create=True)

    def _note_failure(self, future: AskedWrite) -> None:
        """Keep a failure, so that it is raised in the end if nobody asks for it."""
        with self._lock:
            if len(self._failed) >= MAX_FAILURES_KEPT:
                self._failed = deque(each for each in self._failed if not each.asked)
            if len(self._failed) < MAX_FAILURES_KEPT:
                self._failed.append(future)
            else:
                self._uncounted += 1

    def _report(self, body: BaseException | None = None) -> None:
        """Raise PartlyWritten for the failures that nobody asked for; where *body* is raised anyway, log it."""
        with self._lock:
            failed, uncounted = self._failed, self._uncounted
            self._failed, self._uncounted = deque(), 0
        unasked: list[Any] = [each.error for each in failed if not each.asked]
        count = len(unasked) + uncounted
        if not unasked:
            return
        text = f"{count:,} of a writer's {self._window.accepted:,} messages were not written for certain"
        if body is None:
            raise PartlyWritten(unasked, unasked[0], text) from unasked[0]
        log.error("%s; the first error: %s", text, unasked[0])


def was_answered(result: str | Exception) -> bool:
    """Return whether a result is an answer of Redis, which says how long a round trip takes."""
    return not isinstance(result, BackendError) or isinstance(result, DurabilityUnknown)


def end_write(told: OpenWrite | None, result: str | BaseException) -> None:
    """Tell how a write ended, if anybody wants to know."""
    if told is not None:
        told.end(result)
