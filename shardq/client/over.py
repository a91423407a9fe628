"""Operations on a queue by its state, for the parts of shardq that use a client: over its partitions, if it has any.

A state is that of the whole queue, and all that an operation on it sees is the head. So they are run by `over`, and
messages are written by `spread_all` and `writes_at_home`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from shardq.errors import QueueMissing
from shardq.ops.queue.opening import find_queue, open_queue
from shardq.ops.queue.sight import sight
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.queue.together import run_together
from shardq.partitions.parts import Parts, open_parts

T = TypeVar("T")


def over(
    client: Any,
    state: QueueState,
    op: Callable[[QueueState], Op[T]],
    together: Callable[[Sequence[T]], T],
    *,
    looks: bool = False,
) -> Op[T]:
    """Run an operation on a queue, or on each of its partitions at once; then *together* makes one result of theirs.

    One that *looks* by itself says of a queue that this client did not know whether it has partitions.
    """
    found = yield from each_of(client, state, op, looks=looks)
    return found[0] if len(found) == 1 else together(found)


def each_of(client: Any, state: QueueState, op: Callable[[QueueState], Op[T]], *, looks: bool = False) -> Op[list[T]]:
    """Run an operation as `over` does. Return the result of each partition, or that of the queue alone."""
    if looks and state.parts is None:
        found = yield from op(state)
        if state.config.partitions == 1:
            return [found]
    parts = yield from parts_of(client, state)
    return [(yield from op(state))] if parts is None else (yield from parts.everywhere(op))


def parts_of(client: Any, state: QueueState, timeout: float | None = None) -> Op[Parts | None]:
    """Return the partitions of a queue; None if it has none, or is not there. One that is not known is looked at."""
    if state.parts is None:
        until = state.until(timeout)
        if not state.streams:
            yield from _see(state, until)
        if state.config.partitions == 1:
            return None
        # One whose epoch is known is not looked at again: that would take another right.
        return (yield from open_parts(state, client.state_of_part, client.codecs, until, create=bool(state.epoch)))
    return state.parts  # type: ignore[no-any-return]


def _see(state: QueueState, until: float) -> Op[None]:
    """Look at a queue, which takes no right to change any. One that is not there stays unknown."""
    try:
        seen = yield from sight(state, until)
    except QueueMissing:
        return
    state.know(dataclasses.replace(seen.view, epoch=""))


def spread_all(client: Any, states: Sequence[QueueState], until: float) -> Op[None]:
    """Look these queues up together, before messages are written to them. Those that cannot be stay unknown."""
    yield from run_together([_spread(client, state, until) for state in states])


def _spread(client: Any, state: QueueState, until: float) -> Op[None]:
    if state.creates and state.requested.partitions == 1:
        yield from open_queue(state, until)
    elif not state.creates:
        yield from find_queue(state, until)
    if state.config.partitions != 1 or (state.creates and not state.streams):
        yield from open_parts(state, client.state_of_part, client.codecs, until, create=state.creates)
