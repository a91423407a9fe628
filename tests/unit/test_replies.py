"""Reading what the scripts return, also what somebody else wrote into the streams."""

from __future__ import annotations

import pytest

from shardq.model import Received
from shardq.protocol.replies import (
    attributes,
    dead_letter,
    deliveries,
    headers_of,
    pairs,
    stats,
    stored_assignment,
    stored_ids,
    text_or_bytes,
)

NOW = 1_700_000_005_000


def again(
    place: str = "3",
    attributes: bytes = b"",
    headers: bytes = b"",
    count: int = 2,
    error: bytes = b"",
    now: int = NOW,
    since: bytes = b"",
) -> Received:
    """One message in a reply of `read`, delivered before."""
    fields = [b"k", b"tenant", b"m", b"\xa1x"]
    fields += [b"m", attributes] if attributes else []
    fields += [b"h", headers] if headers else []
    row = [f"{place}:1700000000000-7:{count}".encode(), error, fields, since]
    (found,) = deliveries([b"OK", now, b"1", -1, b"", [], [row]], "nonce", 99.0)
    return found


def first(*fields: bytes, place: bytes = b"3", now: int = NOW) -> Received:
    """One message in a reply of `read`, delivered for the first time."""
    (found,) = deliveries([b"OK", now, b"1", -1, b"", [place, [[b"1700000000000-7", [*fields]]]], []], "nonce", 99.0)
    return found


def test_a_row_becomes_a_delivery() -> None:
    got = first(b"k", b"tenant", b"m", b"\xa1x")
    assert (got.message_id, got.shard_key, got.count, got.deadline) == ("1700000000000-7-3", "tenant", 1, 99.0)
    assert (got.body, got.tag, got.headers, got.last_error) == (b"\xa1x", "m", {}, "")
    assert (got.stream, got.pickup_delay, got.origin, got.fields) == (3, 5.0, "", None)
    assert got.token == "3:1700000000000-7:1:nonce"


def test_a_redelivery_has_its_count_and_last_error() -> None:
    got = again(headers=b"\x81\xa1a\xa11", count=2, error=b"no")
    assert (got.message_id, got.shard_key, got.count, got.token) == (
        "1700000000000-7-3", "tenant", 2, "3:1700000000000-7:2:nonce",
    )  # fmt: skip
    assert (got.body, got.tag, got.headers, got.last_error) == (b"\xa1x", "m", {"a": "1"}, "no")


def test_redeliveries_come_first_and_streams_keep_their_order() -> None:
    body = [b"k", b"t", b"b", b"x"]
    new = [b"3", [[b"5-1", body], [b"5-2", body]], b"1", [[b"5-3", body]]]
    found = deliveries([b"OK", NOW, b"1", -1, b"", new, [[b"3:4-1:2", b"", body, b""]]], "n", 0)
    assert [each.message_id for each in found] == ["4-1-3", "5-1-3", "5-2-3", "5-3-1"]


def test_the_token_of_a_message_that_counts_names_its_streams_and_shard_key() -> None:
    body = [b"K", b"\xff:/", b"b", b"x"]
    assert [
        each.token for each in deliveries([b"OK", NOW, b"1", -1, b"", [b"d:3,17", [[b"5-1", body]]], []], "n", 0)
    ] == ["d:5-1:1:n:3,17:\udcff:/"]
    assert again_of(b"K", b"3:5-1:2:").token == "3:5-1:2:n::t"
    assert again_of(b"k", b"3:5-1:2").token == "3:5-1:2:n"


def again_of(mark: bytes, head: bytes) -> Received:
    (found,) = deliveries([b"OK", NOW, b"1", -1, b"", [], [[head, b"", [mark, b"t", b"b", b"x"], b""]]], "n", 0)
    return found


def test_what_came_out_of_overflows_keeps_its_order_though_it_is_told_by_its_streams() -> None:
    fields = [b"K", b"t", b"b", b""]
    new = [b"d:1", [[b"5-8", fields]], b"d:2", [[b"5-7", fields]], b"4", [[b"5-6", fields]]]
    found = deliveries([b"OK", NOW, b"1", -1, b"", new, []], "h", 1.0)
    assert [row.message_id for row in found] == ["5-6-4", "5-7-d", "5-8-d"]


def test_streams_and_the_first_deliveries_of_each_shard_key_that_counts_keep_their_order() -> None:
    """A stream's message may be older than one from the overflow; what comes too early waits for those before it."""
    one, other = [b"K", b"one", b"b", b"x"], [b"K", b"other", b"b", b"x"]
    again = [[b"d:5-9:1:3", b"", one, b""], [b"3:5-3:2:", b"", one, b""]]
    new = [b"3", [[b"5-4", one], [b"5-5", other]], b"d:3", [[b"5-8", one], [b"5-6", other]]]
    found = deliveries([b"OK", NOW, b"1", -1, b"", new, again], "n", 0)
    assert [each.message_id[2] for each in found] == ["3", "4", "5", "8", "9", "6"]


def test_messages_of_one_stream_are_not_swapped_for_the_sake_of_a_shard_key() -> None:
    """To bring its 1 before its 5, the 5 of `one` took the place of another stream's 1: the 2 came after it."""
    one, other = [b"K", b"one", b"b", b"x"], [b"K", b"other", b"b", b"x"]
    new = [b"3", [[b"5-5", one], [b"5-6", other]], b"4", [[b"5-1", one]]]
    found = deliveries([b"OK", NOW, b"1", -1, b"", new, [[b"d:5-9:1:3", b"", other, b""]]], "n", 0)
    assert [each.message_id for each in found] == ["5-1-4", "5-5-3", "5-6-3", "5-9-d"]


def test_the_attributes_of_a_message_are_understood() -> None:
    got = again("d", b" x1700000009000 t1700000004000")
    assert (got.stream, got.pickup_delay, got.message_id) == (None, 1.0, "1700000000000-7-d")
    redriven = again("d", b" i1600000000000-3-9 c4", count=2)
    assert (redriven.message_id, redriven.origin, redriven.count) == ("1600000000000-3-9", "1600000000000-3-9", 6)


@pytest.mark.parametrize("rubbish", [b" c", b" cx tx", b" c" + b"9" * 9999, b"  \xff", b" t-5 c\xc2\xb2"])
def test_rubbish_in_the_attributes_does_not_stop_a_reader(rubbish: bytes) -> None:
    assert again(attributes=rubbish).body == b"\xa1x"


@pytest.mark.parametrize("rest", [(b"m",), (b"h",), (b"z", b"z"), (b"m", b"", b"h"), (b"h", b"", b"m", b"")])
def test_rubbish_after_the_payload_does_not_stop_a_reader(rest: tuple[bytes, ...]) -> None:
    assert first(b"k", b"tenant", b"m", b"\xa1x", *rest).body == b"\xa1x"


def test_rubbish_in_the_headers_does_not_stop_a_reader() -> None:
    assert again(headers=b"\xc1").headers == {}
    assert dict(headers_of(b"\x93\x01\x02\x03")) == {}


@pytest.mark.parametrize("place", [b"l", b"3"])
@pytest.mark.parametrize("key", [b"job", b"k"])
def test_what_something_else_wrote_is_handed_out_as_its_fields(place: bytes, key: bytes) -> None:
    got = first(key, b"\xff", b"n", b"", b"o", b"1", place=place) if place == b"l" else first(key, b"\xff", place=place)
    assert (got.tag, got.shard_key, got.body) == ("l", "", b"")
    assert got.fields == {key.decode(): b"\xff"} | ({"n": b"", "o": b"1"} if place == b"l" else {})


def test_the_clock_never_makes_a_delay_negative() -> None:
    assert again(since=b"%d" % (NOW - 250)).pickup_delay == 0.25
    assert again(now=1_600_000_000_000).pickup_delay == first(b"k", b"t", b"b", b"", now=5).pickup_delay == 0


def test_shard_keys_are_text_where_they_can_be() -> None:
    assert (text_or_bytes("ключ".encode()), text_or_bytes(b"\xff")) == ("ключ", b"\xff")


def test_the_ids_of_a_write_are_spelled_out() -> None:
    assert stored_ids(b"1700000000000|41|3,d,1600000000000-7-2,0") == [
        "1700000000000-42-3", "1700000000000-43-d", "1600000000000-7-2", "1700000000000-44-0",
    ]  # fmt: skip


def test_attributes_are_words() -> None:
    assert attributes(b"") == {}
    assert attributes(b" x5 t6 i7-8-9") == {"x": "5", "t": "6", "i": "7-8-9"}


def test_a_dead_letter_is_read() -> None:
    flat = [
        b"i", b"1700000000000-7-3", b"r", b"why", b"c", b"3", b"e", b"err\xff", b"k", b"\xff", b"m", b"body",
        b"m", b" x5",
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
    meta = [b"created", b"1", b"n", b"9", b"acked", b"2", b"wanted", b"4", b"something else", b"\xff"]
    got = stats("q", [NOW, 3, 2, 1, 0, 1_700_000_003_000, [1, 2], 5, meta, 4, 1])
    assert (got.backlog, got.in_flight, got.delayed, got.legacy, got.streams) == (3, 2, 1, 5, (1, 2))
    assert (got.written, got.acked, got.wanted, got.purged, got.oldest_age, got.held_back) == (9, 2, 4, 0, 2.0, 4)
    assert (got.withheld, got.runnable) == (1, 2)
    assert stats("q", [NOW, 0, 0, 0, 0, NOW + 5, [], 0, meta, 0, 0]).oldest_age == 0


@pytest.mark.parametrize(
    ("limits", "runnable"),
    [
        ({}, 8),
        ({"paused": NOW + 1}, 0),
        ({"paused": NOW}, 8),
        ({"total_in_flight": 5}, 3),
        ({"total_in_flight": 1}, 0),
        ({"total_rate": 10, "total_burst": 4}, 4),
        ({"total_rate": "2.5"}, 3),
        ({"total_rate": 10, "total_burst": 4, "total_full_at": NOW + 200}, 2),
        ({"total_rate": 10, "total_burst": 4, "total_full_at": NOW + 401}, 0),
        ({"total_rate": 10, "total_burst": 4, "total_full_at": NOW - 900}, 4),
    ],
)
def test_what_could_run_now_is_bounded_by_the_limits_of_the_queue(limits: dict[str, object], runnable: int) -> None:
    meta = [b"n", b"20", b"created", b"1", *(str(each).encode() for pair in limits.items() for each in pair)]
    assert stats("q", [NOW, 9, 2, 0, 0, -1, [], 0, meta, 4, 1]).runnable == runnable


def test_pairs_are_text() -> None:
    assert pairs([b"a", b"1", b"b", b"\xff"]) == {"a": "1", "b": "\ufffd"}


def test_shards_are_read_and_what_is_none_is_counted() -> None:
    """Below the reach a stream is the queue's for sure; more than four digits are no stream anywhere."""
    rubbish = [b"16", b"1,1", b"1,", b",1", b"x", b"", b"\xff", b"-1", b"1 ,2", b"12345", "٣".encode(), b"9" * 5000]
    entries = [
        b"",
        b"1|4",
        b"acct",
        b"3,0,15,7",
        b"\xff",
        b"2",
        *(part for at, each in enumerate(rubbish) for part in (b"%d" % at, each)),
    ]
    found = stored_assignment([b"170", 16, entries])
    assert (found.since, found.max_overlap, found.width) == ("170", 1, 4)
    assert found.by_key == {b"acct": (3, 0, 15, 7), b"\xff": (2,)}
    assert found.damaged == len(rubbish)


@pytest.mark.parametrize("rule", [b"", b"x|y", b"1", b"|", b"\xff|4"])
def test_a_rule_that_is_none_is_zero(rule: bytes) -> None:
    found = stored_assignment([b"", 0, [b"", rule]])
    assert (found.since, found.width, dict(found.by_key), found.damaged) == ("", 4 if rule.endswith(b"4") else 0, {}, 0)
