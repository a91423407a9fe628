"""Operations on a queue by its state, for the parts of shardq that use a client: over its partitions, if it has any.

A state is that of the whole queue, and all that an operation on it sees is the head. So such operations are run by
`over`; `tests/house/test_heads.py` lists those that are not, with reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from shardq.ops.queue.change import Agree, Changed
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.partitions import ways
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
    """Look at a queue, or at each of its partitions that is there at once; *together* makes one result of theirs.

    One that *looks* by itself says of a queue that this client did not know whether it has partitions.
    """
    found = yield from _of_each(state, op, Parts.around, looks=looks)
    return found[0] if len(found) == 1 else together(found)


def each_of(state: QueueState, op: Callable[[QueueState], Op[T]], *, looks: bool = False) -> Op[list[T]]:
    """Look as `over` does. Return the result of each partition, or that of the queue alone. None may be gone."""
    return (yield from _of_each(state, op, Parts.everywhere, looks=looks))


def _of_each(
    state: QueueState,
    op: Callable[[QueueState], Op[T]],
    go: Callable[[Parts, Callable[[QueueState], Op[T]]], Op[list[T]]],
    *,
    looks: bool,
) -> Op[list[T]]:
    if looks and state.parts is None:
        found = yield from op(state)
        if state.parts is None:  # as it was seen
            return [found]
    parts = yield from parts_of(state)
    return [(yield from op(state))] if parts is None else (yield from go(parts, op))


def whole(state: QueueState, op: Callable[[QueueState], Op[T]]) -> Op[T]:
    """Run an operation that goes over the partitions of a queue by itself, once they are known."""
    yield from parts_of(state)
    return (yield from op(state))


def of_message(state: QueueState, message_id: str, op: Callable[[QueueState, str], Op[T]]) -> Op[T]:
    """Run an operation on the partition that an id names, with the id within it; or on the queue alone."""
    parts = yield from parts_of(state)
    return (yield from op(state, message_id) if parts is None else ways.of_message(parts, message_id, op))


def change(state: QueueState, op: Callable[[QueueState, Agree | None], Op[object]], agree: Agree) -> Op[None]:
    """Make a change in a queue, or in each of its partitions, if *agree* still says so. Changed if it does not.

    The change of one partition would be seen by what agrees to that of another: so it is asked once, before all.
    """
    parts = yield from parts_of(state)
    if parts is None:
        yield from op(state, agree)
        return
    if not (yield from agree()):
        raise Changed
    yield from parts.change(lambda each: op(each, None))


def parts_of(state: QueueState) -> Op[Parts | None]:
    """Return the partitions of a queue; None if it has none, or is not there. One that is not known is looked at."""
    if state.parts is None and not state.streams:
        yield from is_seen(state, state.until())
    if state.parts is not None:
        state.parts.fresh_for()
    return state.parts  # type: ignore[no-any-return]
