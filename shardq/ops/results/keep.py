"""Keep results of messages that their holders are about to ack, and note progress.

A result is kept ahead of the ack, in a call of its own. So a full Redis, which refuses the result, still takes the ack.
Both carry the lease token: without the lease nothing is kept. If the ack does not come to it after that, the message is
delivered again, and the result of that delivery replaces this one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from shardq.codec import Codecs
from shardq.errors import CodecError, OutOfMemory
from shardq.model import Received
from shardq.model.annotation import Annotation
from shardq.ops.queue.opening import find_queue
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Argument, Call, Op
from shardq.ops.settle.command import MAX_ACKS_A_CALL
from shardq.ops.settle.settle import Settled
from shardq.protocol.lease import token_argument
from shardq.protocol.results import NOT_ENCODED, NOTHING_KEPT, TOO_LARGE, VALUE, KeptResult, spell_progress

log = logging.getLogger("shardq")
Results: TypeAlias = Sequence[tuple[Received, KeptResult]]

CHUNK_BYTES: Final = 1_000_000
"""Bytes of results that one call keeps, about, unless a single one has more."""

PROGRESS_TTL: Final = 86_400.0
"""Seconds for which progress is kept at least."""

NO_RESULT: Final = KeptResult(NOTHING_KEPT)
"""The error of a delivery that reported progress and is about to be acked without a result."""

_FULL: Final = "f"
MAX_KINDS: Final = 1000
_WARNED: Final[set[str]] = set()


def kept_result(codecs: Codecs, max_size: int, value: Any, returns: Annotation | None = None) -> KeptResult:
    """Encode *value* as a result of the type *returns*, if there is one.

    If that cannot be, or it has more than *max_size* bytes, it says so instead.
    """
    try:
        tag, body = codecs.encode(value if returns is None else returns.sent(value, "result"))
    except CodecError as error:
        what = "a result" if returns is None else returns.where
        _warn(f"{NOT_ENCODED} {what}", "%s is not kept, nor are others like it: %s", what, error)
        return KeptResult(NOT_ENCODED)
    if len(body) > max_size:
        _warn(
            TOO_LARGE,
            "a result of %d bytes is not kept, nor are others so large: max_result_size is %d",
            len(body),
            max_size,
        )
        return KeptResult(TOO_LARGE)
    return KeptResult(VALUE, tag, body)


def _warn(kind: str, text: str, *values: object) -> None:
    """Log the first result of a kind that is not kept; the others only when debugging, since there may be very many.

    It remembers 1,000 kinds; a full queue is one.
    """
    log.log(logging.DEBUG if kind in _WARNED else logging.WARNING, text, *values)
    if len(_WARNED) < MAX_KINDS:
        _WARNED.add(kind)


def keep(state: QueueState, results: Results, timeout: float | None = None) -> Op[None]:
    """Keep *results* of deliveries that are about to be acked. Nothing is kept for one whose lease is lost.

    A result for which there is no room is not kept, and the log says so: the message is done anyway.
    """
    until = state.until(timeout)
    yield from find_queue(state, until)
    full = 0
    for part in _parts(results):
        args: list[Argument] = []
        for received, result in part:
            args += (token_argument(received.token), received.message_id, result.kind, result.text)
        call = Call.on(state.keys, "keep", tuple(args))
        try:
            reply = yield from retry_until(always(call), until, state.clock)
        except OutOfMemory:
            full += sum(result is not NO_RESULT for _, result in part)
        else:
            full += reply[1].decode().count(_FULL)
    if full:
        text = "queue %r has no room for results (max_result_bytes): %d not kept, and more will not be"
        _warn(f"full {state.keys.name}", text, state.keys.name, full)


def progress(
    state: QueueState, received: Received, done: float, total: float | None, note: str, timeout: float | None = None
) -> Op[tuple[Settled, bool]]:
    """Note how far the work on a delivery is. Return whether its lease is lost, and whether the note is kept.

    A full Redis refuses it. That is not told as an error, or each job that tells its progress would fail then.
    """
    ttl = max(PROGRESS_TTL, state.config.result_ttl or 0.0)
    args = (token_argument(received.token), received.message_id, round(ttl * 1000), spell_progress(done, total, note))
    call = Call.on(state.keys, "progress", args)
    try:
        reply = yield from retry_until(always(call), state.until(timeout), state.clock)
    except OutOfMemory:
        return Settled.OK, False
    letter = reply[1].decode()
    return (Settled.OK, False) if letter == _FULL else (Settled(letter), letter == Settled.OK.value)


def _parts(results: Results) -> Iterator[Results]:
    """Return *results* in parts that one call each can keep. If a delivery comes twice, its first result counts."""
    part: list[tuple[Received, KeptResult]] = []
    size = 0
    for row in _once(results):
        if part and (len(part) == MAX_ACKS_A_CALL or size + len(row[1].body) > CHUNK_BYTES):
            yield part
            part, size = [], 0
        part.append(row)
        size += len(row[1].body)
    if part:
        yield part


def _once(results: Results) -> Iterable[tuple[Received, KeptResult]]:
    first: dict[str, tuple[Received, KeptResult]] = {}
    for row in results:
        first.setdefault(row[0].token, row)
    return first.values()
