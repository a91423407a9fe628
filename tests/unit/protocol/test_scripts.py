"""The verbs of this version: each is a function of the library, and a script of the same text."""

from __future__ import annotations

import hashlib
import re

import pytest

from shardq.protocol import records, scripts
from shardq.protocol.sources import MARK
from tests.house.lua_lint import FOLDER
from tests.surface import differences, functions


def test_a_script_knows_its_hash_and_whether_it_only_reads() -> None:
    loaded = [scripts.load(name) for name in scripts.names()]
    for script in loaded:
        assert script.sha == hashlib.sha1(script.source.encode(), usedforsecurity=False).hexdigest()
        assert script.source.startswith("#!lua")
        assert script.readonly == ("no-writes" in script.flags)  # `make lua` shows that this is so
    assert {script.readonly for script in loaded} == {True, False}


GROWING = {
    "assign": "shards of shard keys; it also takes some back, which are small",
    "begin_schedule": "a schedule of the program",
    "bind": "bindings; it also takes some back, and notes that for all who follow them",
    "keep": "results",
    "progress": "notes",
    "release": "nothing: by its refusal a gateway sees that the server is full",
    "replace": "a message",
    "resize": "streams",
    "store_schedule": "a schedule of users",
    "write": "messages",
}
"""What a full server refuses, and what that stores."""


def test_what_a_full_server_refuses_is_what_makes_it_fuller() -> None:
    """What takes messages away, or is needed for that, runs on it, too: a reader must be able to drain a queue."""
    refused = [name for name, flags in functions().items() if not {*flags} & {"no-writes", "allow-oom"}]
    assert differences(GROWING, refused) == []


def test_a_script_knows_the_keys_that_its_header_names() -> None:
    named = ("meta", "delayed", "due", "leases", "cancelled")
    assert (scripts.load("len").keys, scripts.load("len").rest) == (named, "")
    assert (scripts.load("shrink").keys, scripts.load("shrink").rest) == (("meta",), "streams")
    assert (scripts.load("skip").keys, scripts.load("skip").rest) == ((), "streams")


def test_the_first_keys_of_a_queue_are_named_in_one_line() -> None:
    """`KEYS[1..14]: the first 14 of a queue (base.lua)`: so a header is not half of names that all verbs share."""
    keys = scripts.load("read").keys
    assert len(keys) == 19
    assert (keys[:2], keys[-2:]) == (("meta", "bodies"), ("finished", "failures"))
    assert scripts.load("write").keys == keys[:14]


def test_scripts_are_loaded_once_and_shown_short() -> None:
    assert scripts.load("write") is scripts.load("write")
    assert repr(scripts.load("write")) == "Script(write)"
    with pytest.raises(KeyError):
        scripts.load("nothing")


CAPITALS = re.compile(r"[A-Z]\w*\.\w|\b[A-Z][A-Z_]+\b")
"""What may be a constant, or a function that is a local of the whole text."""


def test_a_listed_line_stands_where_it_says() -> None:
    """But for fields of records, which are numbers there, a record made over several lines, settings and constants."""
    fields = records.read((FOLDER / "base.lua").read_text().splitlines())
    for name in ("read", "len"):
        for line in scripts.library().listing(name):
            if line.place:
                file, _, number = line.place.partition(":")
                there = (FOLDER / file).read_text().split("\n")[int(number) - 1]
                if "new_" not in there and MARK not in there and not CAPITALS.search(there):
                    assert line.text == records.numbered(fields, there.rstrip()), line.place
