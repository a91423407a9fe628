"""Whatever came out of a queue is shown, never obeyed."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardq.cli.text import bytes_fields, duration, json_line, payload_fields, payload_text, printable, shown_url
from shardq.codec import Codecs

OBEYED = {"Cc", "Cf", "Cs", "Zl", "Zp"}
CODECS = Codecs()


def obeyed(text: str) -> list[str]:
    """The characters of *text* that a terminal would act on."""
    return [char for char in text if unicodedata.category(char) in OBEYED and char not in "\u200c\u200d"]


@given(st.text())
def test_nothing_printable_is_obeyed_by_a_terminal(text: str) -> None:
    assert obeyed(printable(text)) == []


@given(st.text(st.characters(categories=("L", "N", "P", "S"))))
def test_ordinary_text_is_shown_as_it_is(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x9b31m", "\\x9b31m"),
        ("safe\u202egnp.exe", "safe\\u202egnp.exe"),
        ("\U000e0041", "\\U000e0041"),
        ("a family: \U0001f468\u200d\U0001f469", "a family: \U0001f468\u200d\U0001f469"),
        ("grüße 日本", "grüße 日本"),
    ],
)
def test_what_a_terminal_would_obey_becomes_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.dictionaries(st.text(), st.text()))
def test_json_keeps_its_meaning_and_is_not_obeyed_either(value: dict[str, str]) -> None:
    line = json_line(value)
    assert json.loads(line) == value
    assert obeyed(line) == []


@given(st.binary())
def test_any_bytes_become_one_line(body: bytes) -> None:
    assert obeyed(payload_text(CODECS, "b", body)) == []
    fields = payload_fields(CODECS, "b", body)
    assert len(fields) == 1
    json_line(fields)


def test_a_payload_is_told_apart_by_its_field() -> None:
    tag, body = CODECS.encode({"a": 1})
    assert payload_fields(CODECS, tag, body) == {"payload": {"a": 1}}
    assert payload_fields(CODECS, "b", b"text") == {"payload_text": "text"}
    assert payload_fields(CODECS, "b", b"\xff") == {"payload_base64": "/w=="}
    assert payload_fields(CODECS, "Q", b"\xff") == {"payload_base64": "/w==", "codec": "Q"}
    assert payload_fields(CODECS, "l", b"", {"a": b"x", "b": b"\xff"}) == {"fields": {"a": "x", "b_base64": "/w=="}}
    assert bytes_fields("shard_key", "t") == {"shard_key": "t"}


def test_a_value_is_shown_as_json() -> None:
    tag, body = CODECS.encode({"prompt": "a cat\x1b[2J", "n": [1, None]})
    assert payload_text(CODECS, tag, body) == '{"prompt":"a cat\\u001b[2J","n":[1,null]}'
    assert payload_text(CODECS, "l", b"", {"a": b"x\x1b"}) == '{"a":"x\\u001b"}'
    assert payload_text(CODECS, "Q", b"\x00") == "\\x00"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://u:secret@h:1/0", "redis://u:***@h:1/0"),
        ("redis+cluster://:secret@a:1,b:2", "redis+cluster://:***@a:1,b:2"),
        ("redis://h:1", "redis://h:1"),
        ("unix:///run/s?db=0", "unix:///run/s?db=0"),
    ],
)
def test_a_password_is_not_shown(url: str, shown: str) -> None:
    assert shown_url(url) == shown


DURATIONS = {0.0004: "0 ms", 0.34: "0.3 s", 4.24: "4.2 s", 75: "75 s", 720: "12 min", 9_000: "2.5 h", 200_000: "2 d"}


@pytest.mark.parametrize(("seconds", "shown"), [(None, "-"), *DURATIONS.items()])
def test_a_duration_has_the_unit_that_fits(seconds: float | None, shown: str) -> None:
    assert duration(seconds) == shown
