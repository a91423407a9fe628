"""The weights of shard keys in the admission window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shardq.arguments import shown, whole
from shardq.errors import ConfigError
from shardq.model.limits import MAX_WEIGHT
from shardq.ops.operate.limits import spelled_end
from shardq.ops.queue.change import Agree, change_queue, check_replicas
from shardq.ops.queue.outcome import part_of, told_after
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.sight import sight
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Argument, Call, Op
from shardq.ops.queue.who import NOBODY, Who
from shardq.protocol.replies import weights_in
from shardq.sharding import key_bytes

Weights = dict[str | bytes, int]
MAX_WEIGHTED = 1000
"""Shard keys that can be given a weight at once."""
WEIGHTS_A_CALL: Final = 200
FIELDS_A_CALL = 1000


def weights(state: QueueState, timeout: float | None = None) -> Op[Weights]:
    """Return the shard keys whose weight is not 1, with their weights. It only reads."""
    until = state.until(timeout)
    yield from sight(state, until)
    return (yield from _known(state, until))


def _known(state: QueueState, until: float) -> Op[Weights]:
    found: dict[str | bytes, int] = {}
    cursor: Argument = "0"
    while cursor != b"0":
        page = Call.on(state.keys, "weights", (cursor, FIELDS_A_CALL))
        cursor, raw = yield from retry_until(always(page), until, state.clock)
        found |= weights_in(raw)
    return found


def set_weights(
    state: QueueState,
    changes: Mapping[str | bytes, int],
    timeout: float | None = None,
    lasting: float | None = None,
    who: Who = NOBODY,
    agree: Agree | None = None,
) -> Op[Weights]:
    """Set weights of shard keys for *lasting* seconds, None for no end, and return all weights.

    ConfigError for a bad one; then nothing is changed. *agree* as of `change_queue`, once.
    """
    if not isinstance(changes, Mapping):
        raise ConfigError(f"weights must be a dict of shard key: weight, not {shown(changes)}")
    if len(changes) > MAX_WEIGHTED:
        raise ConfigError(f"at most {MAX_WEIGHTED:,} shard keys can be given a weight at once, not {len(changes):,}")
    words = {key_bytes(key): whole(f"the weight of {shown(key)}", each, 1, MAX_WEIGHT) for key, each in changes.items()}
    lasts, said = spelled_end(lasting, "weights", none=1 in words.values()), who.said_by(state)
    rows = [*words.items()]
    until, underreplicated = state.until(timeout), None
    for at in range(0, max(1, len(rows)), WEIGHTS_A_CALL):
        args = tuple(word for row in rows[at : at + WEIGHTS_A_CALL] for word in row)

        def make(epoch: str, following: str, args: tuple[Argument, ...] = args) -> Call:
            return Call.on(state.keys, "weigh", (epoch, following, said, lasts, *args))

        _, missing = yield from part_of(at, change_queue(state, make, until, None if at else agree))
        underreplicated = underreplicated or missing
    known = yield from told_after("the weights were changed", _known(state, until))
    return check_replicas(state, underreplicated, known)
