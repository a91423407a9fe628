"""The outcome of one effect among several: its result, or its error as a value.

An operation that makes several calls must not let the error of one speak for the others, which may have happened. So it
takes the outcome of each, and says for each item, or by `PartlyDone`, what is true.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, cast

from shardq.errors import BackendError, OutcomeUnknown, PartlyDone, ShardqError
from shardq.ops.queue.steps import Known, Op

T = TypeVar("T")


def outcome_of(effect: Op[T]) -> Op[T | ShardqError]:
    """Return what *effect*, a single effect, returns, or the error that it raises."""
    try:
        return (yield from effect)
    except ShardqError as error:
        return error


def told_as(effect: Op[T], pair: Callable[[Any, Any], tuple[Any, Any]]) -> Op[T]:
    """Return what *effect* returns.

    Whatever it makes known of an item meanwhile (`Known`) is passed on as *pair* returns it.
    """
    try:
        step = next(effect)
        while True:
            if isinstance(step, Known):
                step = Known([pair(*each) for each in step.results])
            try:
                outcome = yield step
            except Exception as failure:  # noqa: BLE001 (the operation knows what it means)
                step = effect.throw(failure)
            else:
                step = effect.send(outcome)
    except StopIteration as done:
        return cast("T", done.value)
    finally:
        effect.close()


def part_of(done: int, effect: Op[T]) -> Op[T]:
    """Return the result of *effect*, the next part of a whole that has *done* items behind it.

    PartlyDone if it fails.
    """
    outcome = yield from outcome_of(effect)
    if isinstance(outcome, ShardqError):
        fail_after(done, outcome)
    return outcome


def in_doubt(doubt: bool, effect: Op[T]) -> Op[T]:
    """Return what *effect* returns, a part of a call that is made again.

    If it fails, and an earlier try of the call got no answer (*doubt*), that one may have happened: OutcomeUnknown.
    """
    outcome = yield from outcome_of(effect)
    if not isinstance(outcome, ShardqError):
        return outcome
    if doubt and not isinstance(outcome, OutcomeUnknown):
        raise may_have_happened(outcome) from outcome
    raise outcome


def may_have_happened(error: ShardqError) -> OutcomeUnknown:
    """Return the error of a call that failed with *error*, when an earlier try of it had got no answer."""
    return OutcomeUnknown(
        f"an earlier try of this call got no answer and may have happened; a later one failed by {type(error).__name__}"
    )


def told_after(change: str, effect: Op[T]) -> Op[T]:
    """Return what *effect* returns, which comes after a *change* that was made. PartlyDone says so if it fails."""
    outcome = yield from outcome_of(effect)
    if isinstance(outcome, ShardqError):
        raise PartlyDone(f"{change}, but a call after that failed: {outcome}", 1) from outcome
    return outcome


def fail_after(done: int, error: ShardqError) -> NoReturn:
    """Raise *error*, or if *done* items were done before it, PartlyDone."""
    if not done:
        raise error
    rest = "some of the others may have been, too" if isinstance(error, OutcomeUnknown) else "the others were not"
    raise PartlyDone(f"{done:,} were done before a call failed, and {rest}; its error: {error}", done) from error


def ignore_failure(effect: Op[None]) -> Op[None]:
    """Do *effect*, which gives messages back. If Redis fails it, nothing is lost: their leases end by themselves."""
    try:
        yield from effect
    except BackendError:
        return
