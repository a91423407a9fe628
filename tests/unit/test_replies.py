"""Reading what the scripts return, also what somebody else wrote into the streams."""

from __future__ import annotations

from typing import Any

import pytest

from shardq.replies import attributes, dead_letter, headers_of, pairs, received, stats, stored_ids, text_or_bytes

NOW = 1_700_000_005_000


def row(place: str = "3", attributes: bytes = b"m", headers: bytes = b"", count: int = 1, error: bytes = b"") -> Any:
    """One row of a read."""
    fields = [b"k", b"tenant", b"m", attributes, b"h", headers, b"p", b"\xa1x"]
    return [f"{place}:1700000000000-7:{count}".encode(), error, fields]


def test_a_row_becomes_a_delivery() -> None:
    got = received(row(headers=b"\x81\xa1a\xa11", count=2, error=b"no"), "nonce", NOW, 99.0)
    assert (got.message_id, got.shard_key, got.count, got.deadline) == ("1700000000000-7-3", "tenant", 2, 99.0)
    assert (got.body, got.tag, dict(got.headers), got.last_error) == (b"\xa1x", "m", {"a": "1"}, "no")
    assert (got.stream, got.pickup_delay, got.origin, got.fields) == (3, 5.0, "", None)
    assert got.token == "3:1700000000000-7:2:nonce"


def test_the_attributes_of_a_message_are_understood() -> None:
    got = received(row("d", b"m x1700000009000 t1700000004000"), "nonce", NOW, 0)
    assert (got.stream, got.pickup_delay, got.message_id) == (None, 1.0, "1700000000000-7-d")
    redriven = received(row("d", b"m i1600000000000-3-9 c4", count=2), "nonce", NOW, 0)
    assert (redriven.message_id, redriven.origin, redriven.count) == ("1600000000000-3-9", "1600000000000-3-9", 6)


@pytest.mark.parametrize("rubbish", [b"m c", b"m cx tx", b"m c" + b"9" * 9999, b"m  \xff", b"", b"m t-5 c\xc2\xb2"])
def test_rubbish_in_the_attributes_does_not_stop_a_reader(rubbish: bytes) -> None:
    assert received(row(attributes=rubbish), "nonce", NOW, 0).body == b"\xa1x"


def test_rubbish_in_the_headers_does_not_stop_a_reader() -> None:
    assert dict(received(row(headers=b"\xc1"), "nonce", NOW, 0).headers) == {}
    assert dict(headers_of(b"\x93\x01\x02\x03")) == {}


@pytest.mark.parametrize("place", ["l", "3"])
def test_what_something_else_wrote_is_handed_out_as_its_fields(place: str) -> None:
    got = received([f"{place}:1700000000000-7:1".encode(), b"", [b"job", b"\xff", b"k", b""]], "n", NOW, 0)
    assert (got.tag, got.fields, got.shard_key, got.body) == ("l", {"job": b"\xff", "k": b""}, "", b"")


def test_the_clock_never_makes_a_delay_negative() -> None:
    assert received(row(), "nonce", 1_600_000_000_000, 0).pickup_delay == 0


def test_shard_keys_are_text_where_they_can_be() -> None:
    assert (text_or_bytes("ключ".encode()), text_or_bytes(b"\xff")) == ("ключ", b"\xff")


def test_the_ids_of_a_write_are_spelled_out() -> None:
    assert stored_ids(b"1700000000000|41|3,d,1600000000000-7-2,0") == [
        "1700000000000-42-3", "1700000000000-43-d", "1600000000000-7-2", "1700000000000-44-0",
    ]  # fmt: skip


def test_attributes_are_a_tag_and_words() -> None:
    assert attributes(b"m") == ("m", {})
    assert attributes(b"j x5 t6 i7-8-9") == ("j", {"x": "5", "t": "6", "i": "7-8-9"})


def test_a_dead_letter_is_read() -> None:
    flat = [
        b"i", b"1700000000000-7-3", b"r", b"why", b"c", b"3", b"e", b"err\xff", b"k", b"\xff", b"m", b"m x5",
        b"h", b"", b"p", b"body",
    ]  # fmt: skip
    letter = dead_letter([b"1700000009000-0", flat])
    assert (letter.message_id, letter.reason, letter.count, letter.shard_key) == (
        "1700000000000-7-3",
        "why",
        3,
        b"\xff",
    )
    assert (letter.written_at, letter.died_at) == (1_700_000_000.0, 1_700_000_009.0)
    assert (letter.tag, letter.body, letter.last_error) == ("m", b"body", "err\ufffd")


def test_no_queue_has_no_numbers() -> None:
    got = stats("q", [NOW])
    assert (got.time, got.backlog, got.oldest_age, got.streams) == (1_700_000_005.0, 0, None, ())


def test_the_numbers_of_a_queue_are_read() -> None:
    meta = [b"n", b"9", b"acked", b"2", b"wanted", b"4", b"something else", b"\xff"]
    got = stats("q", [NOW, 3, 2, 1, 0, 1_700_000_003_000, [1, 2], 5, meta])
    assert (got.backlog, got.in_flight, got.delayed, got.legacy, got.streams) == (3, 2, 1, 5, (1, 2))
    assert (got.written, got.acked, got.wanted, got.purged, got.oldest_age) == (9, 2, 4, 0, 2.0)
    assert stats("q", [NOW, 0, 0, 0, 0, NOW + 5, [], 0, meta]).oldest_age == 0


def test_pairs_are_text() -> None:
    assert pairs([b"a", b"1", b"b", b"\xff"]) == {"a": "1", "b": "\ufffd"}
