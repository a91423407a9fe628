"""Filters: what they may say, and that they are written and read whole."""

from __future__ import annotations

from typing import Any

import pytest

from shardq import ConfigError, Where
from shardq.protocol.actions import AskedAction, asked_in, spelled, stored

BAD: dict[str, dict[str, Any]] = {
    "an empty tenant": {"tenant": ""},
    "a tenant that is a number": {"tenant": 7},
    "a long tenant": {"tenant": "x" * 1025},
    "a lone surrogate": {"tenant": "\ud800"},
    "an empty task": {"task": ""},
    "a task that is bytes": {"task": b"t"},
    "a long error": {"error": "x" * 501},
    "a surrogate in an error": {"error": "\ud800"},
    "a reason that is none": {"reason": 3},
    "a negative age": {"older_than": -1},
    "an age that is a text": {"newer_than": "1h"},
    "no number": {"older_than": float("nan")},
    "ages that exclude each other": {"older_than": 60, "newer_than": 60},
    "an unknown state": {"state": "asleep"},
    "a state that is a list": {"state": ["dead"]},
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_filter_is_refused(case: str) -> None:
    with pytest.raises(ConfigError):
        Where(**BAD[case])


GOOD = (
    Where(),
    Where(tenant="a/b"),
    Where(tenant=b"\xff\x00\n|"),
    Where(task="mail.send", error="\n\x00|é", reason="dead", older_than=1, newer_than=2.5, state="in_flight"),
)


@pytest.mark.parametrize("where", GOOD)
def test_what_is_asked_for_is_written_and_read_whole(where: Where) -> None:
    asked = AskedAction("cancel", where, "jonas", "a note | é", 50.0, 7)
    text = spelled(asked)
    assert "\n" not in text
    assert asked_in(text.encode()) == asked
    assert where.is_empty == (where == Where())


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b"\xff", b'{"kind":"eat"}', b'{"kind":"cancel","older_than":-1}'])
def test_what_another_program_wrote_is_none(text: bytes) -> None:
    assert asked_in(text) is None
    assert stored(b"running me 1 2 3 4 5 6 7 - 8 1 9-2 0-0\n\n\n" + text) is None


def test_an_action_is_silent_after_half_a_minute() -> None:
    text = spelled(AskedAction("redrive", Where(state="dead"))).encode()
    action = stored(b"running me 100000 2 3 4 5 6 7 - 8000 1 9-2 0-0\n5-0\n\n" + text)
    assert action is not None
    assert [action.status("x", now).state for now in (100_000, 129_999, 130_000)] == ["running"] * 2 + ["abandoned"]
    assert (action.position, action.left, action.done, action.passed) == ("5-0", None, 6, 7)
