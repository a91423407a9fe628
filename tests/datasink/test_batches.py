"""Batches and the runs of their ids come apart as they were put together, and nothing else comes apart."""

from __future__ import annotations

from random import Random

import pytest

from shardq.datasink.batches import BadBatch, members_in, members_of
from shardq.datasink.messages import Members, Request, Run
from shardq.datasink.runs import BadRuns, ids_in, runs_of


def some_requests(rng: Random, count: int) -> list[Request]:
    """Requests of which some have a queue, headers or a shard key in common."""
    return [
        Request(
            queue=rng.choice(("a", "b", "")), topic=rng.choice(("", "x.y")), shard_key=rng.choice((b"k", b"", b"l")),
            codec=rng.choice("bj"), delay_ms=rng.choice((0, 0, 7)), headers=rng.choice(({}, {"a": "b"}, {"a": "c"})),
            plain_message=rng.randbytes(rng.choice((0, 1, 300))),
        )
        for _ in range(count)
    ]  # fmt: skip


def test_what_was_put_together_comes_apart(rng: Random) -> None:
    for count in (1, 2, 3, 300):
        requests = some_requests(rng, count)
        envelopes, keys, members = members_in(members_of(requests).SerializeToString(), count)
        found = [
            Request(
                queue=envelope.queue, topic=envelope.topic, codec=envelope.codec, delay_ms=envelope.delay_ms,
                headers=envelope.headers, shard_key=keys[each.shard_key], plain_message=each.payload,
            )
            for each in members
            if (envelope := envelopes[each.envelope])
        ]  # fmt: skip
        assert found == requests


def test_what_messages_have_in_common_is_there_once(rng: Random) -> None:
    members = members_of(some_requests(rng, 10_000))
    assert len(members.envelope_sizes) <= 3 * 2 * 2 * 2 * 3
    assert len(members.shard_key_sizes) == 3


def test_bytes_at_random_are_no_batch_or_have_the_number_that_was_asked_for(rng: Random) -> None:
    good = members_of(some_requests(rng, 20)).SerializeToString()
    for _ in range(3000):
        raw = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        try:
            envelopes, keys, members = members_in(bytes(raw[: rng.choice((len(raw), rng.randrange(len(raw))))]), 20)
        except BadBatch:
            continue
        assert len([(envelopes[each.envelope], keys[each.shard_key]) for each in members]) == 20


@pytest.mark.parametrize(
    "members", [Members(), Members(payload_sizes=[0]), Members(payload_sizes=[0], shard_key_sizes=[0])]
)
def test_a_message_without_an_envelope_or_a_shard_key_is_none(members: Members) -> None:
    with pytest.raises(BadBatch):
        members_in(members.SerializeToString(), 1)


def test_ids_that_follow_each_other_are_named_by_the_first(rng: Random) -> None:
    first = rng.randbytes(12) + b"\x00\x00\xff\xf0"
    ids = [(int.from_bytes(first, "big") + each).to_bytes(16, "big") for each in range(1000)]
    (run,) = runs_of(ids)
    assert run.ByteSize() < 25
    assert ids_in([run], 1000) == ids


def test_any_ids_are_named(rng: Random) -> None:
    for _ in range(300):
        ids = [
            rng.choice((b"\x00", b"\x01", b"\x00\x01", b"\x00\x02", b"\xff", b"a" * 64))
            for _ in range(rng.randrange(30))
        ]
        assert ids_in(runs_of(ids), 30) == ids


@pytest.mark.parametrize(
    "runs",
    [
        [Run(first=b"a", count=31)], [Run(first=b"a", count=2**32 - 1)] * 9, [Run(first=b"\xff", count=2)],
        [Run(first=b"", count=1)], [Run(first=b"a" * 65, count=1)], [Run(first=b"a")],
    ],
)  # fmt: skip
def test_runs_that_name_too_many_ids_or_none_are_refused(runs: list[Run]) -> None:
    with pytest.raises(BadRuns):
        ids_in(runs, 30)
