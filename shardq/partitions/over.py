"""Operations on a queue by its state, for the parts of shardq that use a client: over its partitions, if it has any.

A state is that of the whole queue, and all that an operation on it sees is the head. So such operations are run by
`over`; `tests/house/test_heads.py` lists those that are not, with reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.partitions.asking import is_seen
from shardq.partitions.parts import Parts

T = TypeVar("T")


def over(
    state: QueueState,
    op: Callable[[QueueState], Op[T]],
    together: Callable[[Sequence[T]], T],
    *,
    looks: bool = False,
) -> Op[T]:
    """Run an operation on a queue, or on each of its partitions at once; then *together* makes one result of theirs.

    One that *looks* by itself says of a queue that this client did not know whether it has partitions.
    """
    found = yield from each_of(state, op, looks=looks)
    return found[0] if len(found) == 1 else together(found)


def each_of(state: QueueState, op: Callable[[QueueState], Op[T]], *, looks: bool = False) -> Op[list[T]]:
    """Run an operation as `over` does. Return the result of each partition, or that of the queue alone."""
    if looks and state.parts is None:
        found = yield from op(state)
        if state.parts is None:  # as it was seen
            return [found]
    parts = yield from parts_of(state)
    return [(yield from op(state))] if parts is None else (yield from parts.everywhere(op))


def whole(state: QueueState, op: Callable[[QueueState], Op[T]]) -> Op[T]:
    """Run an operation that goes over the partitions of a queue by itself, once they are known."""
    yield from parts_of(state)
    return (yield from op(state))


def parts_of(state: QueueState) -> Op[Parts | None]:
    """Return the partitions of a queue; None if it has none, or is not there. One that is not known is looked at."""
    if state.parts is None and not state.streams:
        yield from is_seen(state, state.until())
    if state.parts is not None:
        state.parts.fresh_for()
    return state.parts  # type: ignore[no-any-return]
