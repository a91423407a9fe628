"""The sources of the library: what is sent, where each line of it comes from, and what a module must look like."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from shardq.protocol import sources
from shardq.protocol.library import Library

STATE = """-- The state.
local call, now

-- Set what is not there while a library is loaded.
local function begin()
  call = redis.call

  -- once a call
  now = call('TIME')
end
local verbs = {}
"""
VERBS = """-- Verbs.

-- @verb look | no-writes, allow-oom: look at it
-- KEYS[1] meta: the state
-- KEYS[2..] streams: what is declared
-- ARGV[1] count: how many
-- Reply: nothing
function verbs.look(KEYS, ARGV)
  begin()
  return now -- at once
end

-- @verb write: write it
-- Reply: nothing
function verbs.write(KEYS, ARGV)
end
"""
SENT = """#!lua name={name}
local call, now
local function begin()
  call = redis.call
  now = call('TIME')
end
local verbs = {{}}
local Verbs = {{}}
do
function verbs.look(KEYS, ARGV)
  begin()
  return now -- at once
end
function verbs.write(KEYS, ARGV)
end
end
redis.register_function{{function_name = '{name}_look', callback = verbs.look, flags = {{'no-writes', 'allow-oom'}}}}
redis.register_function{{function_name = '{name}_write', callback = verbs.write, flags = {{}}}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def made(folder: Path, state: str = STATE, verbs: str = VERBS, order: str = "base  # first\n\nverbs\n") -> Library:
    (folder / "order.txt").write_text(order)
    (folder / "base.lua").write_text(state)
    (folder / "verbs.lua").write_text(verbs)
    return sources.read(folder)


def test_the_modules_are_one_text_without_comments_and_the_verbs_are_registered(folder: Path) -> None:
    found = made(folder)
    assert found.text == SENT.format(name=found.name)
    assert found.name.startswith("shardq_")
    assert len(found.name) == len("shardq_") + 12
    assert repr(found) == f"Library({found.name})"


def test_the_name_changes_with_what_is_sent_and_with_nothing_else(folder: Path) -> None:
    name = made(folder).name
    assert made(folder, STATE.replace("-- once a call", "-- once")).name == name
    assert made(folder, STATE.replace("'TIME'", "'PING'")).name != name
    assert made(folder, verbs=VERBS.replace(" | no-writes, allow-oom", " | no-writes")).name != name


def test_a_verb_is_a_function_and_a_script_of_the_same_text(folder: Path) -> None:
    found = made(folder)
    look, write = found.script("look"), found.script("write")
    body = found.text.partition("\n")[2].partition("redis.register_function")[0]
    assert look.source == f"#!lua flags=no-writes,allow-oom\n{body}return verbs.look(KEYS, ARGV)\n"
    assert write.source == f"#!lua\n{body}return verbs.write(KEYS, ARGV)\n"
    assert look.sha == hashlib.sha1(look.source.encode(), usedforsecurity=False).hexdigest()
    assert (look.function, look.flags, look.readonly) == (f"{found.name}_look", ("no-writes", "allow-oom"), True)
    assert (look.keys, look.rest, write.keys, write.rest) == (("meta",), "streams", (), "")
    assert (write.readonly, write.library) == (False, found)
    with pytest.raises(KeyError):
        found.script("state")


def test_commands_name_the_function_the_hash_or_the_source(folder: Path) -> None:
    look = made(folder).script("look")
    assert look.command("function") == ("FCALL_RO", look.function)
    assert look.command("hash") == ("EVALSHA_RO", look.sha)
    assert look.command("source") == ("EVAL_RO", look.source)
    assert made(folder).script("write").command("function")[0] == "FCALL"


def test_each_line_of_what_is_sent_is_found_in_its_module(folder: Path) -> None:
    found = made(folder)
    files = {"base.lua": STATE.splitlines(), "verbs.lua": VERBS.splitlines()}
    located = []
    for at, text in enumerate(found.text.splitlines(), 1):
        if place := found.locate(at):
            file, _, number = place.partition(":")
            assert files[file][int(number) - 1] == text
            located.append(at)
    assert located == [*range(2, 8), *range(10, 16)], "all but what joins the modules"
    assert found.locate(5) == "base.lua:9"
    assert (found.locate(0), found.locate(1), found.locate(17), found.locate(99)) == ("", "", "", "")


def test_a_line_has_one_number_in_the_library_and_in_every_script(folder: Path) -> None:
    found = made(folder)
    for name in found.verbs:
        assert found.script(name).source.splitlines()[1:16] == found.text.splitlines()[1:16]


def test_what_is_listed_of_a_verb_is_the_script_that_runs_where_no_library_can_be_loaded(folder: Path) -> None:
    found = made(folder)
    for name in found.verbs:
        listing = found.listing(name)
        assert "".join(f"{line.text}\n" for line in listing) == found.script(name).source
        assert [line.place for line in listing[1:8]] == [found.locate(at) for at in range(2, 9)]


def test_the_first_keys_of_a_queue_are_those_that_the_base_gives_places(folder: Path) -> None:
    base = STATE.replace("local verbs", "local META = 1\nlocal DUE = 2\nlocal LATE = 50 -- ms\nlocal verbs")
    verbs = VERBS.replace(
        "-- KEYS[1] meta: the state\n-- KEYS[2..]", "-- KEYS[1..2]: the first 2 of a queue\n-- KEYS[3..]"
    )
    look = made(folder, base, verbs).script("look")
    assert (look.keys, look.rest) == (("meta", "due"), "streams")


def test_an_error_is_explained(folder: Path) -> None:
    text = "user_function:5: no script: x, on @user_script:12. user_function:999 my_user_function:5"
    assert made(folder).explain("look", text) == (
        "base.lua:9 (look): no script: x, on @verbs.lua:10 (look). user_function:999 my_user_function:5"
    )


@pytest.mark.parametrize(
    ("verbs", "about"),
    [
        (VERBS.replace("@verb write: write it", "writes"), r"verbs\.lua:15: above write must stand: -- @verb write"),
        (VERBS.replace("@verb write:", "@verb wrote:"), "above write must stand"),
        (VERBS.replace("no-writes,", "no-reads,"), "no-reads"),
        (VERBS.replace("KEYS[2..]", "KEYS[3..]"), "number its keys"),
        (VERBS.replace("KEYS[1] meta", "KEYS[1..] meta"), "only the last"),
        (VERBS.replace("streams:", "meta:"), "same name"),
        (VERBS.replace("function verbs.write", "\nfunction verbs.write"), "its function must come"),
        (VERBS + VERBS, "there is a verb look already"),
        (VERBS.replace("-- at once", "--[[ at"), "several lines"),
    ],
)
def test_a_module_that_is_not_well_formed_is_an_error_that_says_where(folder: Path, verbs: str, about: str) -> None:
    with pytest.raises(ValueError, match=about):
        made(folder, verbs=verbs)


@pytest.mark.parametrize("order", ["base\n", "base\nverbs\nother\n", "base\nverbs\nbase\n"])
def test_the_order_names_each_module_once(folder: Path, order: str) -> None:
    with pytest.raises(ValueError, match=r"each module once.*: (verbs|other|base)$"):
        made(folder, order=order)
