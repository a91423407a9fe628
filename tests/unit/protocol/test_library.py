"""The library as a wheel has it, which was made when that was built."""

from __future__ import annotations

import pytest

from shardq.protocol import library, scripts


def refuse() -> None:
    raise AssertionError("the sources were read")


def test_what_is_installed_has_all_that_the_sources_give_and_does_not_read_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = scripts.library()
    monkeypatch.setattr(scripts, "get_data", lambda package, name: {library.FILE: library.encode(made)}.get(name))
    monkeypatch.setattr(scripts, "root", refuse)
    installed = scripts.library.__wrapped__()
    assert installed is not made
    assert (installed.name, installed.text, installed.verbs) == (made.name, made.text, made.verbs)
    assert installed.script("read").source == made.script("read").source
    assert installed.script("read").sha == made.script("read").sha
    at = made.text.split("\n").index("function verbs.read(KEYS, ARGV)") + 1
    assert installed.locate(at).startswith("read.lua:")
    assert [*map(installed.locate, range(len(made.places) + 2))] == [*map(made.locate, range(len(made.places) + 2))]
