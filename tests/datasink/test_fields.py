"""The fields of a message are counted before it is parsed, and no further than there may be."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from shardq.datasink.fields import BadFields, fields_in, numbers_of
from shardq.datasink.messages import Batch, ClientInfo, Request, Run


def test_the_fields_of_a_request_are_found(rng: Random) -> None:
    for _ in range(300):
        given: dict[str, Any] = {
            "version": rng.choice((0, 1, 2**32 - 1)), "message_id": rng.randbytes(rng.randrange(300)),
            "queue": "q" * rng.randrange(200), "delay_ms": rng.choice((0, 1, 2**64 - 1)),
            "plain_message": rng.randbytes(rng.choice((0, 1, 127, 128, 20_000))),
        }  # fmt: skip
        raw = Request(**given).SerializeToString()
        found = fields_in(raw, 5)
        there = {field.number for field, _ in Request(**given).ListFields()}
        assert {number for number, _, _ in found} == there
        (payload,) = (raw[begin:end] for number, begin, end in found if number == 9)
        assert payload == given["plain_message"]


def test_the_fields_within_another_are_found() -> None:
    raw = Request(version=1, batch=Batch(ids=[Run(first=b"a", count=1)] * 3, plain=b"xyz")).SerializeToString()
    ((_, begin, end),) = (each for each in fields_in(raw, 2) if each[0] in numbers_of(Request, "batch"))
    assert [number for number, _, _ in fields_in(raw, 4, begin, end)] == [1, 1, 1, 2]


def test_fixed_numbers_are_passed_over() -> None:
    raw = b"\x09" + b"x" * 8 + b"\x0d" + b"x" * 4 + b"\x08\x01"
    assert [number for number, _, _ in fields_in(raw, 3)] == [1, 1, 1]


@pytest.mark.parametrize(
    "raw",
    [
        ClientInfo(released=[b""] * 11).SerializeToString(), b"\x0a\x05abcd", b"\x0a", b"\x0a\xff", b"\xff" * 11,
        b"\x08" + b"\xff" * 11, b"\x0b\x0c", b"\x0d\x01\x01",
    ],
)  # fmt: skip
def test_too_many_and_what_is_none_are_refused(raw: bytes) -> None:
    with pytest.raises(BadFields):
        fields_in(raw, 10)
