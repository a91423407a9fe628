"""Release a gateway's dedup keys: Redis forgets them before their window ends, since nobody will use them again."""

from __future__ import annotations

from collections.abc import Sequence

from shardq.ops.queue.outcome import part_of
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op
from shardq.ops.write.outgoing import checked_key

IDS_AT_ONCE = 1000


def release(state: QueueState, dedup_keys: Sequence[str], timeout: float | None = None) -> Op[int]:
    """Let Redis forget *dedup_keys* that have a scope of their own.

    Return how many it remembered; fewer if a try got no answer and was repeated.
    A later write with one of them stores a message again. ConfigError for a bad key, BackendTimeout, BackendError.
    """
    until, known = state.until(timeout), 0
    checked = tuple(checked_key("dedup_key", key) for key in dedup_keys)
    for at in range(0, len(checked), IDS_AT_ONCE):
        call = Call.on(state.keys, "release", checked[at : at + IDS_AT_ONCE])
        effect: Op[int] = retry_until(always(call), until, state.clock)
        known += yield from part_of(known, effect)
    return known
