"""Messages outside of streams: bodies, and blocks of overflows."""

from __future__ import annotations

import pytest

from shardq.protocol.bodies import body_of, entry_of, fields_of, message_id, records_of

PLAIN = b"o:3:a:b0:0:b0:payload"
FULL = b"7:1:t11: x123 t456 4:key1m3:h|hp:|"
FOREIGN = b"l:0:0:0:l0:3:job1:75:other0:"


def sized(record: bytes) -> bytes:
    return b"%d:%b" % (len(record), record)


@pytest.mark.parametrize(
    ("raw", "origin", "fields"),
    [
        (PLAIN, "o", [b"k", b"a:b", b"b", b"payload"]),
        (FULL, "7", [b"k", b"t", b"m", b"p:|", b"m", b" x123 t456 ", b"h", b"h|h"]),
        (FOREIGN, "l", [b"job", b"7", b"other", b""]),
        (b"d:1:t0:0:j0:", "d", [b"k", b"t", b"j", b""]),
    ],
)
def test_a_body_is_read_as_the_entry_that_it_would_be(raw: bytes, origin: str, fields: list[bytes]) -> None:
    assert entry_of(raw) == (origin, fields)


def test_a_body_is_read_in_parts() -> None:
    body = body_of(PLAIN)
    assert (body.origin, body.key, body.tag, body.headers, body.payload) == ("o", b"a:b", "b", b"", b"payload")
    assert fields_of(body_of(FOREIGN).payload) == {"job": b"7", "other": b""}


def test_a_payload_that_lies_by_itself_goes_where_the_body_ends() -> None:
    raw, payload = b"o=3:a:b0:0:b3:h|h", b"x" * 2000
    assert entry_of(raw, payload) == ("o", [b"k", b"a:b", b"b", payload, b"h", b"h|h"])
    assert body_of(raw, payload) == ("o", b"a:b", {}, b"", "b", b"h|h", payload)


def test_blocks_have_records_and_what_was_taken_is_left_out() -> None:
    first, second, third, fourth = b"9-1|0:0:b0:x", b"9-2@", b"9-3|0:0:b0:1|2:3@", b"9-4=0:0:b0:"
    block = b"".join(map(sized, (first, second, third, fourth)))
    records = [(b"9-1", b"0:0:b0:x", False), (b"9-2", None, False), (b"9-3", b"0:0:b0:1|2:3@", False),
               (b"9-4", b"0:0:b0:", True)]  # fmt: skip
    assert [*records_of(block)] == records
    assert [*records_of(block, len(sized(first)))] == records[1:]
    assert [record.entry for record in records_of(block, 1)] == [b"9-2", b"9-3", b"9-4"]
    assert [*records_of(b"")] == []


def test_an_id_ends_with_the_shard_key_where_nothing_else_leads_to_the_message() -> None:
    assert message_id("9-1", "7", "a b") == "9-1-7"
    assert message_id("9-1", "o", "a-b/ü") == "9-1-o.a-b%2F%C3%BC"
    assert message_id("9-1", "o", b"\xff") == "9-1-o.%FF"
