"""The loader of the Lua sources: includes once each, also when they go round in circles."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from shardq import scripts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lib").mkdir()
    return tmp_path


def put(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name.replace('__', '/')}.lua").write_text(text)


def test_an_include_is_replaced_by_its_file(folder: Path) -> None:
    put(folder, verb="a\n--- @include lib/part\nz\n", lib__part="part")
    assert scripts.join("verb", folder) == "a\npart\nz\n"


def test_a_file_that_is_included_twice_stands_once(folder: Path) -> None:
    put(
        folder,
        verb="--- @include lib/one\n--- @include lib/two\n--- @include lib/one",
        lib__one="one",
        lib__two="two\n--- @include lib/one",
    )
    assert scripts.join("verb", folder).split() == ["one", "two"]


def test_includes_in_a_circle_come_to_an_end(folder: Path) -> None:
    put(folder, verb="--- @include lib/one", lib__one="one\n--- @include lib/two", lib__two="two\n--- @include lib/one")
    assert scripts.join("verb", folder).split() == ["one", "two"]


def test_a_missing_include_is_an_error_that_names_it(folder: Path) -> None:
    put(folder, verb="--- @include lib/nowhere")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        scripts.join("verb", folder)


def test_only_a_line_of_its_own_is_an_include(folder: Path) -> None:
    text = "x --- @include lib/part\n-- @include lib/part\n  --- @include lib/part\n"
    put(folder, verb=text, lib__part="part")
    assert scripts.join("verb", folder) == text


def test_a_script_knows_its_hash_and_whether_it_only_reads() -> None:
    for name in scripts.names():
        script = scripts.load(name)
        assert script.sha == hashlib.sha1(script.source.encode(), usedforsecurity=False).hexdigest()
        assert script.source.startswith("#!lua")
        assert "@include" not in script.source
    assert {name for name in scripts.names() if scripts.load(name).readonly} == {
        "assignment",
        "bindings",
        "dead",
        "follow",
        "journal",
        "len",
        "lengths",
        "skip",
        "stats",
        "weights",
    }


def test_a_script_knows_the_keys_that_its_header_names() -> None:
    assert (scripts.load("len").keys, scripts.load("len").rest) == (("meta", "delayed", "due"), "")
    assert (scripts.load("shrink").keys, scripts.load("shrink").rest) == (("meta", "lens"), "streams")
    assert (scripts.load("skip").keys, scripts.load("skip").rest) == ((), "streams")


def test_scripts_are_loaded_once_and_shown_short() -> None:
    assert scripts.load("write") is scripts.load("write")
    assert repr(scripts.load("write")) == "Script(write)"
    with pytest.raises(FileNotFoundError):
        scripts.load("nothing")
