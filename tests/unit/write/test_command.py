"""The bytes of a call for many messages, put together from packed words, are those of its words."""

from __future__ import annotations

import random

import pytest

from shardq.drivers.wire import commands_of, packed
from shardq.ops.queue.sequences import ProducerSequence
from shardq.ops.write.command import MIN_PACKED_WRITE, WriteMany, call_for
from shardq.ops.write.outgoing import Outgoing
from shardq.protocol.packing import pack
from shardq.protocol.script import FUNCTION
from shardq.spark.ops.bulk import BulkOffset, _call
from shardq.spark.ops.rows import Rows
from shardq.testing import ManualClock
from tests.unit.driving import state_of
from tests.unit.sharing.test_shared_verbs import UNTIL

KEYS: tuple[str | bytes, ...] = ("a", "ä" * 300, b"\xff\x00\r\n", "tenant-1", b"tenant-1", "x" * 1024)


def words_of(call: WriteMany) -> tuple[object, ...]:
    return (*call.script.command(FUNCTION), len(call.keys), *call.keys, *call.args)


@pytest.mark.parametrize("streams", [1, 16, 64])
def test_the_bytes_are_those_of_the_words(clock: ManualClock, rng: random.Random, streams: int) -> None:
    """In chunks of one write and of the next, which has other keys; by themselves and as a command of a driver."""
    state = state_of(clock, streams=streams, streams_per_shard=min(6, streams))
    for count in (MIN_PACKED_WRITE + 3, 20, 250):
        keys = [rng.choice(KEYS) for _ in range(count)]
        bodies = [rng.randbytes(rng.choice((0, 1, 9, 10, 99, 100, 5000))) for _ in range(count)]
        call = _call(state, BulkOffset("w", "0"), 0, Rows(keys, rng.choice("bmA"), bodies), 0, count)
        assert isinstance(call, WriteMany)
        assert call.request(FUNCTION) == pack(words_of(call))  # type: ignore[arg-type]
        assert packed(commands_of(call, FUNCTION, timeout=1)) == call.request(FUNCTION)


def test_messages_of_one_call_may_be_unlike(clock: ManualClock) -> None:
    """Those with headers or options, and of several codecs, take the general way."""
    state = state_of(clock, streams=16, streams_per_shard=2)
    plain = [Outgoing(f"t-{at}", "b", b"x") for at in range(20)]
    for unlike in (
        Outgoing("t", "m", b"x"),
        Outgoing("t", "b", b"x", headers=b"\x80"),
        Outgoing("t", "b", b"x", delay=5),
    ):
        call = call_for(state, state.view, ProducerSequence("p:x:0"), [*plain, unlike], UNTIL)
        assert not isinstance(call, WriteMany)
        assert packed(commands_of(call, FUNCTION, timeout=1)) == pack(words_of(call))  # type: ignore[arg-type]
    assert isinstance(call_for(state, state.view, ProducerSequence("p:x:0"), plain, UNTIL), WriteMany)
