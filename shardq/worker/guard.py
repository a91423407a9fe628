"""The one place where a worker looks at users' code: what their functions return and raise, and their policies.

An error is looked at once, where it was caught. Only plain data leaves here: an `Outcome` and texts. No function here
raises, whatever a user's `__getattr__`, `__str__` or metaclass does. So one bad message fails by itself, and takes
neither a thread nor a slot of the worker with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import traceback
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, TypeAlias, cast

from shardq.arguments import MAX_BLOCK, seconds
from shardq.backoff import Backoff
from shardq.client import AsyncQueue, Queue
from shardq.errors import ConfigError
from shardq.model import DeliveryView
from shardq.model.failed import class_of, described, is_a, name_of, text_of
from shardq.ops.results.keep import kept_result
from shardq.protocol.results import KeptResult
from shardq.worker.outcome import ACK, GIVE_BACK, Failed, GiveBack, Nack, Outcome, Reject, TimeLimit, outcome_of
from shardq.worker.plan import RETRY
from shardq.worker.state import WorkerJob, is_last
from shardq.worker.trouble import RANDOM, note, say

_TRACEBACK: Final = BaseException.__dict__["__traceback__"].__get__
_CAUSE: Final = BaseException.__dict__["__cause__"].__get__
"""Give these of an error, by no code of its class."""


Leaves: TypeAlias = Callable[[], bool]
"""Returns whether the worker's `run` was cancelled. Then the one that cancels its functions, too, has ended the loop.
"""


def performed(
    run: Callable[[WorkerJob], object],
    job: WorkerJob,
    jobs: Queue | AsyncQueue,
    backoff: Backoff,
    most: int | None,
    leaves: Leaves,
) -> Outcome:
    """Return the outcome of *run*, a plain function that makes a job's call; *most* is `max_deliveries` or None."""
    try:
        return _done(job, jobs, run(job))
    except BaseException as error:  # noqa: BLE001 (SystemExit of a handler is its failure, not the worker's end)
        if is_a(error, asyncio.CancelledError) and leaves():  # of an async function that it waited for
            return GIVE_BACK
        return _failed(error, job, backoff, most)


async def performed_async(
    run: Callable[[WorkerJob], Awaitable[object]],
    job: WorkerJob,
    jobs: Queue | AsyncQueue,
    backoff: Backoff,
    most: int | None,
    leaves: Leaves,
) -> Outcome:
    """Do as `performed`, for a coroutine function. It does not raise CancelledError either."""
    try:
        return _done(job, jobs, await run(job))
    except BaseException as error:  # noqa: BLE001 (as above)
        if is_cancelled(error):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)  # the end of the loop cancels `run`, too, which says so within this pass
            return GIVE_BACK if leaves() else _failed(error, job, backoff, most)
        found: list[Outcome] = []
        with contextlib.suppress(asyncio.CancelledError):  # what has failed has failed, whatever the worker wants now
            await job.call.aside(lambda error=error: found.append(_failed(error, job, backoff, most)))
        return found[0] if found else GIVE_BACK


def _done(job: WorkerJob, jobs: Queue | AsyncQueue, value: object) -> Outcome:
    """Return the outcome of a call that returned *value*: an ack, with its result if the queue keeps results."""
    if value is not None:
        checked(value, job.call.where)
    config = jobs.state.config
    if config.result_ttl is None:
        return ACK
    if isinstance(value, KeptResult):  # a child process has encoded it
        return Outcome("ack", result=value)
    return Outcome("ack", result=kept_result(jobs.client.codecs, config.max_result_size, value, job.call.returns))


def checked(value: object, function: str) -> object:
    """Return what a *function* returned. ConfigError if that is still to be run, since then nothing was done yet."""
    if value is not None and inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()  # else Python warns that it was never awaited, which is said here
        raise ConfigError(
            f"{function} returned an awaitable, which nobody awaits: declare it with async def, and await"
        )
    return value


def _failed(error: BaseException, job: WorkerJob, backoff: Backoff, most: int | None) -> Outcome:
    return judged(judged_by_call(error, job), job.delivery, backoff, most)


def judged_by_call(error: BaseException, job: WorkerJob) -> BaseException:
    """Return what the call of *job* makes of its *error*, after the program heard of it."""
    error = raised_by(error)
    if is_cancelled(error):
        return error  # the worker knows why
    try:
        job.call.tell(job.delivery, error)
        return cast("BaseException", job.call.judged(job.delivery, error))
    except BaseException:  # noqa: BLE001 (an application's own)
        return error


def judged(error: BaseException, delivery: DeliveryView, backoff: Backoff, most: int | None) -> Outcome:
    """Return what a handler's *error* means, and log it with its own text; *most* is `max_deliveries` or None."""
    try:
        error = raised_by(error)
        outcome = outcome_of(error, lambda: delay_of(backoff, delivery.count))
    except BaseException:  # noqa: BLE001 (whatever the error's class does)
        outcome = _unknown(error, delivery)
    try:
        return _logged(error, outcome, delivery, most)
    except BaseException:  # noqa: BLE001 (as above)
        say(delivery, f"failed, delivery {delivery.count}: {outcome.text}")
        return outcome


def _unknown(error: BaseException, delivery: DeliveryView) -> Outcome:
    """Return the outcome of an *error* at which nobody can look."""
    return Outcome("nack", RETRY(delivery.count, RANDOM), name_of(error), error_type=class_of(error))


def _logged(error: BaseException, outcome: Outcome, delivery: DeliveryView, most: int | None) -> Outcome:
    if delivery.lost or is_a(error, (Nack, Reject, GiveBack)):
        return outcome
    trace = traced(error.error if is_a(error, Failed) else error)
    if outcome.verb == "reject" or is_last(delivery, most):
        return outcome._replace(is_last_error=True, trace=trace)  # `dead_of` tells it with the dead letter
    say(delivery, f"failed, delivery {delivery.count}, again in {outcome.delay:.1f} s: {outcome.text}", trace)
    return outcome


def overdue(job: WorkerJob, backoff: Backoff) -> tuple[TimeLimit, Outcome]:
    """Return the error of a *job* that takes longer than it may, and the outcome."""
    late = TimeLimit(f"it ran for more than {job.call.limit:g} s")
    try:
        error = job.call.judged(job.delivery, late)
        return late, outcome_of(error, lambda: delay_of(backoff, job.delivery.count))
    except BaseException:  # noqa: BLE001 (a class in `retry_on` may have a metaclass)
        return late, _unknown(late, job.delivery)._replace(text=described(late), reason="time limit")


def delay_of(backoff: Backoff, count: int) -> float:
    """Seconds until the next delivery, by the user's backoff, or by the default one if that raises or is no time."""
    try:
        return seconds("the backoff's delay", backoff(count, RANDOM), 0, MAX_BLOCK)
    except BaseException as error:  # noqa: BLE001 (somebody else's function)
        why = described(error)
    note(logging.ERROR, "the worker's backoff failed after delivery %d, and the default one is used: %s", count, why)
    return RETRY(count, RANDOM)


def tell(what: str, function: Callable[..., object], *args: object) -> None:
    """Call a *function* of the user for whose result nobody waits. Its error is logged."""
    try:
        checked(function(*args), f"the worker's {what}")
    except BaseException as error:  # noqa: BLE001 (somebody else's function)
        _log_failure(what, error)


async def tell_async(what: str, function: Callable[..., object], *args: object) -> None:
    """Do as `tell`, and await what the function returns, if it can be awaited."""
    try:
        told = function(*args)
        if inspect.isawaitable(told):
            await told
    except BaseException as error:
        if is_cancelled(error):
            raise
        _log_failure(what, error)


def is_cancelled(error: BaseException) -> bool:
    """Return whether *error* ends this task because somebody cancelled it; else it awaited what was cancelled."""
    if not is_a(error, asyncio.CancelledError):
        return False
    try:
        task = asyncio.current_task()
    except RuntimeError:  # in a thread
        return False
    return task is not None and task.cancelling() > 0


def _log_failure(what: str, error: BaseException) -> None:
    note(logging.ERROR, "the worker's %s raised an error: %s", what, described(error), trace=traced(error))


def raised_by(error: BaseException) -> BaseException:
    """Return what the user's code raised: Python lets no StopIteration leave a coroutine, and wraps it (PEP 479)."""
    if type(error) is not RuntimeError or described(error) not in _WRAPPED:
        return error
    cause: BaseException | None = _CAUSE(error)
    return cause if cause is not None and is_a(cause, (StopIteration, StopAsyncIteration)) else error


_WRAPPED: Final = [
    f"RuntimeError: {kind} raised {what}"
    for kind in ("coroutine", "generator", "async generator")
    for what in ("StopIteration", "StopAsyncIteration")
]


def is_one_of(error: BaseException, kinds: tuple[type[BaseException], ...]) -> bool | None:
    """Return whether *error* is of one of the user's classes; None if one of them, or the error, cannot say so."""
    try:
        return isinstance(error, kinds)
    except BaseException:  # noqa: BLE001 (whatever its class or a metaclass does)
        return None


def path_of(error: BaseException) -> str:
    """Return the module and the name of the class of *error*, in one bounded line; only the name if that raises."""
    kind = type(error)
    try:
        return text_of(f"{kind.__module__}.{kind.__qualname__}")
    except BaseException:  # noqa: BLE001 (whatever its metaclass does)
        return name_of(error)


def traceback_of(error: BaseException) -> TracebackType | None:
    """Return the traceback of *error*."""
    return cast("TracebackType | None", _TRACEBACK(error))


def traced(error: BaseException) -> str:
    """Return the traceback of *error* as text, or only its frames if the rest has no text; '' if none is wanted."""
    try:
        if is_a(error, Nack) or getattr(error, "untraced", False):
            return ""
        lines = traceback.format_exception(error)
    except BaseException:  # noqa: BLE001 (whatever its class does)
        lines = [*traceback.format_tb(traceback_of(error)), name_of(error)]
    return "".join(lines).rstrip().encode(errors="replace").decode()
