"""Keys: one slot per queue, no two queues share a key, names are checked."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardq.arguments import check_name, shown
from shardq.errors import ConfigError
from shardq.protocol.keys import QueueKeys, RouterKeys, slot
from shardq.sharding import MAX_STREAMS

ALPHABET = string.ascii_letters + string.digits + "._-:/"
names = st.text(ALPHABET, min_size=1, max_size=200)
tricky = st.text("as0:.-/", min_size=1, max_size=6)  # short names that look like parts of keys


def all_keys(name: str) -> set[str]:
    keys = QueueKeys(name)
    return {*keys.fixed, *(keys.stream(n) for n in (0, 1, 9, 10, MAX_STREAMS - 1))}


def test_spelling() -> None:
    """Keys are spelled shardq:{name}:suffix; what is stored in Redis depends on it."""
    keys = QueueKeys("a/b")

    assert keys.prefix == "shardq:{a/b}:"
    suffixes = (
        "meta bodies turns notifications leases due journal delayed errors cancelled dedup dedup-index producers "
        "bulk-offsets returned dead moved finished failures assigned limits results result-ends "
        "schedules schedule-due workers minutes actions"
    )

    assert " ".join(key.removeprefix(keys.prefix) for key in keys.fixed) == suffixes
    assert (keys.stream(0), keys.stream(4095)) == ("shardq:{a/b}:s0", "shardq:{a/b}:s4095")
    assert keys.dedup_index == "shardq:{a/b}:dedup-index"


@given(st.one_of(names, tricky), st.one_of(names, tricky))
def test_queues_share_no_key(a: str, b: str) -> None:
    """The key sets of two different names are disjoint, and the keys of one name are distinct."""
    assert len(all_keys(a)) == len(QueueKeys(a).fixed) + 5
    assert (a == b) or all_keys(a).isdisjoint(all_keys(b))


@given(names)
def test_a_queue_lives_in_one_slot(name: str) -> None:
    """All keys of a queue are in the slot of its name."""
    assert {slot(name)} == {slot(key) for key in all_keys(name)}


@given(names)
def test_keys_hold_no_glob_characters(name: str) -> None:
    """No key is a pattern for SCAN, KEYS or an ACL rule, nor holds blanks or control characters."""
    for key in all_keys(name):
        assert not set(key) & set("*?[]\\^ ")
        assert key.isascii()
        assert key.isprintable()


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("", "must not be empty: use 1 to 200 of letters, digits and . _ - : /"),
        ("x" * 201, "at most 200 characters, this one has 201"),
        ("a}b", r"may not hold '}' \(at index 1\): use letters, digits"),
        ("{a", "may not hold '{'"),
        ("a b", "may not hold ' '"),
        ("a*", r"may not hold '\*'"),
        ("[a-z]", r"may not hold '\['"),
        ("a?", r"may not hold '\?'"),
        ("a\\", "may not hold"),
        ("a\n", r"may not hold '\\n'"),
        ("\0", "may not hold"),
        ("é", r"may not hold '\\xe9'"),
        ("٣", r"may not hold '\\u0663'"),  # a digit, but not an ASCII one
        ("a\u202eb", r"may not hold '\\u202e'"),
        ("\ud800", r"may not hold '\\ud800'"),
        (b"a", "must be a str, not bytes"),
        (None, "must be a str, not NoneType"),
        (7, "must be a str, not int"),
    ],
)
def test_bad_names_are_refused(name: Any, advice: str) -> None:
    """A bad name is a ConfigError that names the character and what is allowed, safely printable."""
    with pytest.raises(ConfigError, match=advice) as caught:
        QueueKeys(name)

    assert str(caught.value).isascii()


@given(names)
def test_good_names_are_returned(name: str) -> None:
    """check_name returns what it accepts."""
    assert name == check_name(name)


@pytest.mark.parametrize("bad", [-1, MAX_STREAMS, "0", None, 1.5, 10**5000], ids=lambda value: f"{type(value)}")
def test_bad_stream_numbers_are_refused(bad: Any) -> None:
    """A stream number is an int of 0 to 4,095, so the cache of keys is bounded."""
    with pytest.raises(ConfigError, match="stream number"):
        QueueKeys("q").stream(bad)


def test_stream_keys_are_cached() -> None:
    """Asking again gives the same object."""
    keys = QueueKeys("q")

    assert keys.stream(7) is keys.stream(7)


def test_the_keys_of_a_script_are_looked_up_by_name_once() -> None:
    """A script gets the keys that its header names, in the header's order."""
    keys, names = QueueKeys("q"), ("due", "meta")

    assert keys.of("script", names) == (keys.due, keys.meta)
    assert keys.of("script", names) is keys.of("script", names)
    assert QueueKeys("other").of("script", names) == ("shardq:{other}:due", "shardq:{other}:meta")


@pytest.mark.parametrize(
    ("keys", "name", "kind"),
    [
        (QueueKeys("q"), "changes", "queue"),
        (QueueKeys("q"), "prefix", "queue"),
        (QueueKeys("q"), "dedup-index", "queue"),
        (RouterKeys("q"), "meta", "router"),
    ],
)
def test_a_header_that_names_no_key_is_told(keys: QueueKeys | RouterKeys, name: str, kind: str) -> None:
    with pytest.raises(LookupError) as caught:
        keys.of("open", ("bindings" if kind == "router" else "meta", name))

    assert str(caught.value) == f"the header of the verb open names the key {name!r}, which a {kind} lacks"


def test_keys_are_a_value() -> None:
    """Two QueueKeys of one name are equal and hash alike, and none can be changed."""
    assert {QueueKeys("q")} == {QueueKeys("q"), QueueKeys("q")}
    assert repr(QueueKeys("q")) == "QueueKeys(name='q')"
    with pytest.raises(AttributeError):
        QueueKeys("q").meta = "x"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("123456789", 0x31C3),  # the check value of CRC16/XMODEM, from Redis's cluster specification
        ("foo", 12182),
        ("", 0),
        ("{user1000}.following", slot("user1000")),
        ("foo{bar}{zap}", slot("bar")),
        ("foo{{bar}}zap", slot("{bar")),
        (b"\xff{a}", slot("a")),
    ],
)
def test_slots(key: str | bytes, expected: int) -> None:
    """A slot is CRC16/XMODEM modulo 16,384 of the first hash tag that is not empty, else of the whole key."""
    assert expected == slot(key)


def test_empty_or_open_tags_do_not_count() -> None:
    """An empty first tag or an open brace leaves the whole key to be hashed."""
    assert slot("foo{}{bar}") != slot("bar")
    assert slot("foo{bar") != slot("bar")
    assert slot("}a{b}") == slot("b")


def test_shown_never_fails() -> None:
    """Refused values are shown short, whatever their repr does."""

    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    assert shown(10**5000) == "this int"
    assert shown(Broken()) == "this Broken"
    assert len(shown("x" * 100)) == 40
