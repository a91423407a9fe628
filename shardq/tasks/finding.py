"""From a delivery to the task that it calls, and the arguments; and what becomes of it if the task fails."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from shardq.clock import Clock
from shardq.errors import CodecError
from shardq.model import DeliveryView, Received
from shardq.model.call import called
from shardq.protocol.lease import deliveries_in
from shardq.tasks.failure import told
from shardq.tasks.signature import UnknownArguments, WrongArguments
from shardq.tasks.task import Task
from shardq.worker.guard import delay_of
from shardq.worker.outcome import Failed, GiveBack, Nack, Reject, is_a

log = logging.getLogger("shardq")
UNKNOWN_FOR: Final = 3600.0
"""Seconds for which a call of an unknown task is given back: a rolling deploy should be over by then."""
UNKNOWN_PAUSE: Final = 5.0
"""Seconds until such a call is delivered again, to another worker perhaps."""
MOST_UNKNOWN: Final = 1000
_SINCE: Final = re.compile(r"unknown since (\d{1,15}): ")


class _Envelope(msgspec.Struct, array_like=True, gc=False):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"\x80")


_ENVELOPES: Final = msgspec.msgpack.Decoder(_Envelope)


class Finder:
    """Finds the tasks of calls. Each unknown name is logged once."""

    def __init__(self, tasks: Mapping[str, Task[Any, Any, Any]], clock: Clock) -> None:
        self._tasks, self._clock = tasks, clock
        self._unknown: set[str] = set()

    def find(self, delivery: DeliveryView) -> tuple[Task[Any, Any, Any], dict[str, Any]]:
        """Return what *delivery* calls: its task, and its arguments by name.

        Reject if that can never be done, GiveBack if another release may know it.
        """
        received = delivery.received
        try:
            body = received.body if received.tag == "m" else msgspec.msgpack.encode(delivery.payload)
            envelope = _ENVELOPES.decode(body)
        except (msgspec.MsgspecError, CodecError):
            raise Reject("it is no call of a task: its payload must be [name, {argument: value}]") from None
        task = self._tasks.get(envelope.name)
        if task is None:
            raise self._unknown_yet(delivery, f"there is no task {envelope.name[:200]!r} here")
        most = task.most_tries
        # All deliveries are at least as many as those since a redrive, and need no look into the token.
        if most is not None and received.count > most and tries_of(delivery) > most:
            # Those before ended with their leases.
            raise Reject(f"task {task.name!r} was delivered {most} times, and none was finished")
        try:
            mark = body[task.mark_at] if task.mark_at < len(body) else 0
            return task, task.signature.decoded(envelope.arguments, mark)
        except UnknownArguments as error:
            raise self._unknown_yet(
                delivery, f"task {task.name!r} has no parameter {str(error)[:200]!r} here"
            ) from None
        except WrongArguments as error:
            raise Reject(f"task {task.name!r} does not take its arguments: {error}") from None

    def _unknown_yet(self, delivery: DeliveryView, text: str) -> Exception:
        if text not in self._unknown and len(self._unknown) < MOST_UNKNOWN:
            self._unknown.add(text)
            log.warning("%s: calls of it are given back for %g s, then they are dead letters", text, UNKNOWN_FOR)
        now = self._clock.wall()
        since = _unknown_since(delivery, now)
        if now - since > UNKNOWN_FOR:
            return Reject(text)
        return GiveBack(UNKNOWN_PAUSE, f"unknown since {since:.0f}: {text}")


def _unknown_since(delivery: DeliveryView, now: float) -> float:
    """Return since when no worker has known what *delivery* calls, as the last one wrote into its error."""
    found = _SINCE.match(delivery.last_error)
    return min(float(found[1]), now) if found else now


def tries_of(delivery: DeliveryView) -> int:
    """Return how often a call was delivered since it was written, or redriven: that begins anew."""
    return deliveries_in(delivery.received.token)


def name_in(received: Received) -> str:
    """Return the name of the task that a message calls; '' if it is no call, or of a codec of the user's own."""
    if received.tag != "m":
        return called(received.tag, received.body)
    try:
        return _ENVELOPES.decode(received.body).name
    except msgspec.MsgspecError:
        return ""


def judged(
    task: Task[Any, Any, Any], error: BaseException, delivery: DeliveryView, *, with_text: bool
) -> BaseException:
    """Return what a worker is to be told of an *error* of a task's function."""
    if is_a(error, (Nack, Reject, GiveBack)):
        return error
    text = told(error, task.function, with_text=with_text)
    if not task.retries.tries_again(error, tries_of(delivery)):
        return Failed(error, None, text, gives_up=True)
    backoff = task.retries.backoff
    return Failed(error, None if backoff is None else delay_of(backoff, tries_of(delivery)), text, gives_up=False)
