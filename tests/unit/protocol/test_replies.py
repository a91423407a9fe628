"""Reading what the verbs return, also what somebody else wrote into the streams."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import asdict

from shardq.model import Received
from shardq.model.stats import COUNTS
from shardq.protocol.bodies import attributes, deliveries, headers_of, text_or_bytes
from shardq.protocol.replies import dead_letter, pairs, stats, stored_assignment, stored_ids
from tests.surface import differences, facts
from tests.unit.wire import read_reply

NOW = 1_700_000_005_000


def sized(text: bytes) -> bytes:
    return b"%d:%b" % (len(text), text)


def body(
    key: bytes = b"tenant",
    *,
    origin: bytes = b"3",
    tag: bytes = b"m",
    payload: bytes = b"\xa1x",
    attributes: bytes = b"",
    headers: bytes = b"",
) -> bytes:
    """A message as it is stored outside of streams."""
    return b"%b:%b%b%b%b%b%b" % (origin, sized(key), sized(attributes), sized(b""), tag, sized(headers), payload)


def again(head: bytes = b"d:1700000000000-7:2:-", *, error: bytes = b"", now: int = NOW, **parts: bytes) -> Received:
    """One message in a reply of `read` that was not read out of a stream; it is deliverable since 1,700,000,004 s."""
    row = [head, error, body(**parts), b"1700000004000"]
    (found,) = deliveries(read_reply(again=(row,), now=now), "nonce", 99.0)
    return found


def first(*fields: bytes, now: int = NOW, mark: bytes = b"") -> Received:
    """One message in a reply of `read` that lay in stream 2."""
    (found,) = deliveries(read_reply([b"1700000000000-7", [*fields]], now=now, mark=mark), "nonce", 99.0)
    return found


def test_a_row_becomes_a_delivery() -> None:
    got = first(b"k", b"tenant", b"m", b"\xa1x")
    assert (got.message_id, got.shard_key, got.count, got.deadline) == ("1700000000000-7-2", "tenant", 1, 99.0)
    assert (got.body, got.tag, got.headers, got.last_error) == (b"\xa1x", "m", {}, "")
    assert (got.stream, got.pickup_delay, got.fields) == (2, 5.0, None)


def test_a_redelivery_has_its_count_and_last_error() -> None:
    got = again(headers=b"\x81\xa1a\xa11", error=b"no")
    assert (got.message_id, got.shard_key, got.count, got.stream) == ("1700000000000-7-3", "tenant", 2, 3)
    assert (got.body, got.tag, got.headers, got.last_error) == (b"\xa1x", "m", {"a": "1"}, "no")
    assert got.pickup_delay == 1.0


def test_what_lay_in_streams_comes_first_and_all_keep_the_order_of_the_reply() -> None:
    """The reply is in the order in which messages are to be handled: who waits has its turn after the streams."""
    fields = [b"K", b"t", b"b", b"x"]
    reply = read_reply(again=((b"d:4-1:2:", b"", body(), b"1"), (b"d:4-9:1:", b"", body(origin=b"d"), b"1")))
    reply[5] = [b"3", [[b"5-2", fields], [b"5-3", fields]], 1, [[b"5-1", fields]]]
    found = [each.message_id for each in deliveries(reply, "n", 0)]
    assert found == ["5-2-3", "5-3-3", "5-1-1", "4-1-3", "4-9-d"]


def test_a_token_says_where_the_body_lies_which_delivery_it_is_whose_and_for_which_shard_key() -> None:
    """place:id:attempt:holder:marks:key, as lua/leases.lua reads it."""
    assert first(b"K", b"t", b"b", b"x", mark=b"f17").token == "2:1700000000000-7:1:nonce:f17:t"
    assert first(b"K", b"\xff:/", b"b", b"x").token == "2:1700000000000-7:1:nonce::\udcff:/"
    assert first(b"k", b"t", b"b", b"x", mark=b"f17").token == "2:1700000000000-7:1:nonce:-:t"  # on no account
    assert first(b"job", b"7", mark=b"f17").token == "2:1700000000000-7:1:nonce:-:"  # nobody's
    assert again(b"d:1700000000000-7:3:elf17", key=b"\xff").token == "d:1700000000000-7:3:nonce:elf17:\udcff"


def test_an_id_names_the_shard_key_where_nothing_else_leads_to_the_message() -> None:
    assert again(origin=b"o", key=b"a/b").message_id == "1700000000000-7-o.a%2Fb"
    assert again(b"d:01700000000000-7:1:-", origin=b"l", key=b"").message_id == "1700000000000-7-l"


def test_deliveries_before_a_redrive_count() -> None:
    got = again(attributes=b" x1700000009000 c4")
    assert (got.count, got.token.split(":")[2]) == (6, "2")


@pytest.mark.parametrize("rubbish", [b" c", b" cx tx", b" c" + b"9" * 9999, b"  \xff", b" t-5 c\xc2\xb2"])
def test_rubbish_in_the_attributes_does_not_stop_a_reader(rubbish: bytes) -> None:
    assert again(attributes=rubbish).body == b"\xa1x"
    assert first(b"k", b"tenant", b"m", b"\xa1x", b"m", rubbish).body == b"\xa1x"


@pytest.mark.parametrize("rest", [(b"m",), (b"h",), (b"m", b"", b"h")])
def test_rubbish_after_the_payload_does_not_stop_a_reader(rest: tuple[bytes, ...]) -> None:
    assert first(b"k", b"tenant", b"m", b"\xa1x", *rest).body == b"\xa1x"


@pytest.mark.parametrize("rest", [(b"z", b"z"), (b"h", b"", b"m", b"")])
def test_what_only_begins_like_a_message_is_another_programs(rest: tuple[bytes, ...]) -> None:
    assert (first(b"k", b"tenant", b"m", b"\xa1x", *rest).tag, first(b"k", b"tenant", b"m", b"", *rest).body) == (
        "l",
        b"",
    )


def test_rubbish_in_the_headers_does_not_stop_a_reader() -> None:
    assert again(headers=b"\xc1").headers == {}
    assert dict(headers_of(b"\x93\x01\x02\x03")) == {}


def test_what_something_else_wrote_is_handed_out_as_its_fields() -> None:
    """Into the legacy stream it may write anything, into a stream of the queue nothing that begins as shardq's do."""
    fields = [b"job", b"\xff", b"n", b""]
    legacy = again(b"d:01700000000000-7:1:-", origin=b"l", key=b"", tag=b"l", payload=b"".join(map(sized, fields)))
    for got in (legacy, first(*fields)):
        assert (got.tag, got.shard_key, got.body) == ("l", "", b"")
        assert got.fields == {"job": b"\xff", "n": b""}
    assert first(b"k", b"t").fields == {"k": b"t"}


def test_the_clock_never_makes_a_delay_negative() -> None:
    assert again(now=1_600_000_000_000).pickup_delay == first(b"k", b"t", b"b", b"", now=5).pickup_delay == 0


def test_shard_keys_are_text_where_they_can_be() -> None:
    assert (text_or_bytes("ключ".encode()), text_or_bytes(b"\xff")) == ("ключ", b"\xff")


def test_the_ids_of_a_write_are_spelled_out() -> None:
    keys: list[str | bytes] = ["a", "b", "c", "ä/", b"\xff"]
    assert stored_ids(b"1700000000000|41|3,d,1600000000000-7-2,o,o", keys) == [
        "1700000000000-42-3", "1700000000000-43-d", "1600000000000-7-2", "1700000000000-44-o.%C3%A4%2F",
        "1700000000000-45-o.%FF",
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
    meta = [
        b"created",
        b"1",
        b"id",
        b"1-x",
        b"n",
        b"9",
        b"wanted",
        b"4",
        b"offset",
        b"120003",
        b"something else",
        b"\xff",
    ]
    paused = b"9000000000000000\x1f1700000001000\x1fjonas\x1fmend it"
    told = [b"", NOW + 5000, 7, paused]
    got = stats("q", [NOW, 3, 2, 1, 0, 1_700_000_003_000, [1, 2], 5, meta, 4, 1, 2, 2, 3, 0, *told])
    assert (got.backlog, got.in_flight, got.delayed, got.legacy, got.streams) == (3, 2, 1, 5, (1, 2))
    assert (got.written, got.acked, got.wanted, got.purged, got.oldest_age, got.held_back) == (9, 2, 4, 0, None, 4)
    assert (got.limited, got.runnable, got.tenants_waiting) == (1, 2, 3)
    assert (got.delivered, got.next_due, got.due_soon) == (12, 1_700_000_010.0, 7)
    assert (got.paused_until, got.paused_since) == (math.inf, 1_700_000_001.0)
    assert (got.paused_by, got.paused_note) == ("jonas", "mend it")
    got = stats("q", [NOW, 0, 0, 0, 0, NOW + 5, [], 0, meta, 0, 0, 0, 0, 0, 0, b"", -1, 0, b""])
    assert (got.oldest_age, got.next_due, got.paused_until, got.paused_by) == (0, None, None, "")


COUNTED = {*facts()} & {*COUNTS}
BY_THE_VERB = {
    "acked": "of what was written it is what did not end otherwise",
    "delivered": "it stands with the offset",
    "due_soon": "it changes by itself",
    "held_back": "it changes by itself",
    "legacy": "it is the length of a stream",
    "limited": "it changes by itself",
    "runnable": "it changes by itself",
    "tenants_waiting": "it changes by itself",
    "written": "it is in the id of the last message",
}
NO_NUMBERS = {
    "accounts": "a setting", "adopted": "it counts in acked", "assigned": "when shards were assigned",
    "created": "a time", "epoch": "a nonce", "events": "a position in the journal",
    "generation": "how many maps of partitions there were", "id": "which queue it is",
    "offset": "where reads go on", "reach": "which streams are assigned", "redriven": "it counts in acked",
    "rules": "settings", "streams": "their lengths are told",
}  # fmt: skip


def test_each_counter_of_the_state_is_a_number_of_stats() -> None:
    assert differences(COUNTED, COUNTS, BY_THE_VERB) == differences(COUNTED, facts(), NO_NUMBERS) == []
    known = {b"n": b"9", b"id": b"1-x", b"offset": b"180003"} | {
        name.encode(): b"%d" % (100 + at) for at, name in enumerate(COUNTED)
    }
    meta = [word for pair in known.items() for word in pair]
    got = asdict(stats("q", [NOW, 3, 2, 1, 0, NOW, [1, 2], 11, meta, 12, 13, 14, 15, 16, 0, b"1", -1, 17, b""]))
    assert len({got[name] for name in COUNTS}) == len(COUNTS), "each has its own"


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
