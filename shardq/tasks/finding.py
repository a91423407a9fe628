"""From a delivery to the name of the task that it calls, and the arguments; and what becomes of it if that fails."""

from __future__ import annotations

import logging
import re
from typing import Any, Final

import msgspec

from shardq.clock import Clock
from shardq.model import DeliveryView
from shardq.model.failed import is_a
from shardq.protocol.lease import deliveries_in
from shardq.tasks.failure import told
from shardq.tasks.signature import UnknownArguments, WrongArguments
from shardq.tasks.task import Task
from shardq.worker.guard import delay_of
from shardq.worker.outcome import Failed, GiveBack, Nack, Reject, unfit

log = logging.getLogger("shardq")
UNKNOWN_SECONDS: Final = 3600.0
"""Seconds for which a call of an unknown task is given back: a rolling deploy should be over by then."""
UNKNOWN_PAUSE: Final = 5.0
"""Seconds until a call of an unknown task is delivered again, to another worker perhaps."""
MAX_UNKNOWN: Final = 1000
_SINCE: Final = re.compile(r"unknown since (\d{1,15}): ")


class _Envelope(msgspec.Struct, array_like=True, gc=False):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"\x80")


_ENVELOPES: Final = msgspec.msgpack.Decoder(_Envelope)


def _called(delivery: DeliveryView) -> tuple[bytes, _Envelope]:
    """Return the payload as MessagePack, and what it calls. Reject if it is no call."""
    received = delivery.received
    try:
        body = received.body if received.tag == "m" else msgspec.msgpack.encode(delivery.payload)
        return body, _ENVELOPES.decode(body)
    except BaseException:  # noqa: BLE001 (of a codec of the user's own, and RecursionError of msgspec)
        raise unfit("it is no call of a task: its payload must be [name, {argument: value}]", "cannot decode") from None


def name_in(delivery: DeliveryView) -> str:
    """Return the name of the task that *delivery* calls; '' if it is no call. It raises nothing."""
    try:
        return _called(delivery)[1].name
    except Reject:
        return ""


class Finder:
    """Finds the arguments of calls. Each unknown task or parameter is logged once, and *where* tasks are looked for."""

    def __init__(self, clock: Clock, where: str = "") -> None:
        self._clock, self._where = clock, where
        self._unknown: set[str] = set()

    def arguments(self, delivery: DeliveryView, task: Task[Any, Any, Any] | None) -> dict[str, Any]:
        """Return the arguments by name of the *task* that *delivery* calls; None if it is unknown.

        Reject if that can never be done, GiveBack if another release may know it.
        """
        body, envelope = _called(delivery)
        if task is None:
            raise self._unknown_yet(delivery, f"there is no task {envelope.name[:200]!r} here{self._where}")
        most = task.most_tries
        # All deliveries are at least as many as those since a redrive, and need no look into the token.
        if most is not None and delivery.count > most and tries_of(delivery) > most:
            # Those before ended with their leases.
            raise Reject(f"task {task.name!r} was delivered {most} times, and none was finished")
        try:
            mark = body[task.mark_at] if task.mark_at < len(body) else 0
            return task.signature.decoded(envelope.arguments, mark, is_ours=delivery.received.tag == "m")
        except UnknownArguments as error:
            raise self._unknown_yet(
                delivery, f"task {task.name!r} has no parameter {str(error)[:200]!r} here"
            ) from None
        except WrongArguments as error:
            text = f"task {task.name!r} does not take its arguments: {error}"
            raise unfit(text, "cannot decode", type(error).__name__) from None

    def _unknown_yet(self, delivery: DeliveryView, text: str) -> Exception:
        if text not in self._unknown and len(self._unknown) < MAX_UNKNOWN:
            self._unknown.add(text)
            log.warning("%s: calls of it are given back for %g s, then they are dead letters", text, UNKNOWN_SECONDS)
        now = self._clock.wall()
        since = _unknown_since(delivery, now)
        if now - since > UNKNOWN_SECONDS:
            return unfit(text, "no such task")
        return GiveBack(UNKNOWN_PAUSE, f"unknown since {since:.0f}: {text}", "no such task")


def _unknown_since(delivery: DeliveryView, now: float) -> float:
    """Return since when no worker has known what *delivery* calls, as the last one wrote into its error."""
    found = _SINCE.match(delivery.last_error)
    return min(float(found[1]), now) if found else now


def tries_of(delivery: DeliveryView) -> int:
    """Return how often a call was delivered since it was written, or redriven: that begins again."""
    return deliveries_in(delivery.received.token)


def judged(
    task: Task[Any, Any, Any], error: BaseException, delivery: DeliveryView, *, with_text: bool
) -> BaseException:
    """Return the worker's view of an *error* of a task's function."""
    if is_a(error, (Nack, Reject, GiveBack)):
        return error
    text = told(error, task.function, with_text=with_text)
    if not task.retries.tries_again(error, tries_of(delivery)):
        return Failed(error, None, text, gives_up=True)
    backoff = task.retries.backoff
    return Failed(error, None if backoff is None else delay_of(backoff, tries_of(delivery)), text, gives_up=False)
