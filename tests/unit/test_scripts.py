"""The loader of the Lua sources: a script gets exactly those functions of modules that it uses."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from shardq.ops.read_call import MANY
from shardq.protocol import scripts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "modules").mkdir()
    return tmp_path


def put(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name.replace('__', '/')}.lua").write_text(text)


LEASES = """-- Leases.
--- @use time
local MOST = 5

-- One.
local function count_all()
  return MOST + read_clock()
end

-- Another.
local function end_one()
  -- It says "end".
  return 'count_all'
end
"""
TIME = "-- Time.\nlocal function read_clock()\n  return 1\nend\n"
READ_CLOCK = "local function read_clock()\n  return 1\nend\n"
COUNT_ALL = f"local MOST = 5\n{READ_CLOCK}local function count_all()\n  return MOST + read_clock()\nend\n"
END_ONE = "local function end_one()\n  -- It says \"end\".\n  return 'count_all'\nend\n"


def use(folder: Path, verb: str) -> str:
    put(folder, verb=verb, modules__leases=LEASES, modules__time=TIME)
    return scripts.join("verb", folder)


def test_a_use_is_replaced_by_the_functions_that_the_code_uses_after_what_they_use(folder: Path) -> None:
    assert use(folder, "--- @use leases\nreturn count_all()\n") == COUNT_ALL + "return count_all()\n"
    assert use(folder, "--- @use leases\nreturn end_one()\n") == END_ONE + "return end_one()\n"


def test_names_in_comments_texts_and_fields_are_no_uses(folder: Path) -> None:
    rest = "return 'count_all' .. \"count_all\" .. x.count_all .. x:count_all() -- count_all()\n"
    assert use(folder, f"--- @use leases\n{rest}") == f"\n{rest}"
    assert COUNT_ALL in use(folder, "--- @use leases\nreturn ''..count_all()\n")


def test_a_use_in_a_block_gives_to_that_block(folder: Path) -> None:
    verb = "--- @use leases\nif end_one() then\n  --- @use leases\n  return count_all()\nend\n"
    inside = "".join(f"  {line}\n" for line in COUNT_ALL.splitlines())
    assert use(folder, verb) == f"{END_ONE}if end_one() then\n{inside}  return count_all()\nend\n"


def test_what_is_there_already_is_not_placed_again(folder: Path) -> None:
    verb = "--- @use time\nread_clock()\nif x then\n  --- @use leases\n  return count_all()\nend\n"
    assert use(folder, verb).count("local function read_clock()") == 1
    verb = "--- @use leases\nif x then\n  --- @use leases\n  count_all()\nend\nreturn count_all()\n"
    assert use(folder, verb).startswith(COUNT_ALL + "if x")


def test_two_blocks_have_each_their_own(folder: Path) -> None:
    block = "if x then\n  --- @use leases\n  return end_one()\nend\n"
    assert use(folder, block + block).count("local function end_one()") == 2


def test_a_later_use_places_what_only_the_code_below_it_uses(folder: Path) -> None:
    verb = "--- @use leases\nend_one()\n--- @use leases\nreturn count_all() + end_one()\n"
    assert use(folder, verb) == f"{END_ONE}end_one()\n{COUNT_ALL}return count_all() + end_one()\n"


def test_a_missing_module_is_an_error_that_names_it(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        use(folder, "--- @use nowhere\n")


def test_the_straight_part_may_be_left_out(folder: Path) -> None:
    verb = "read()\n--- @straight\nif common() then return end\n\n--- @general\n--- @use leases\nreturn end_one()\n"
    put(folder, verb=verb, modules__leases=LEASES, modules__time=TIME)
    general = f"--- @general\n{END_ONE}return end_one()\n"
    assert scripts.join("verb", folder) == f"read()\n--- @straight\nif common() then return end\n\n{general}"
    assert scripts.join("verb", folder, straight=False) == f"read()\n{general}"


def test_scripts_are_loaded_without_their_straight_parts_while_that_is_asked_for() -> None:
    straight = {name for name in scripts.names() if "--- @straight\n" in scripts.load(name).source}
    with scripts.leave_out_straight():
        assert not any("--- @straight\n" in scripts.load(name).source for name in scripts.names())
    assert straight == {name for name in scripts.names() if "--- @straight\n" in scripts.load(name).source}
    assert straight == {"write", "read", "ack"}


def test_a_script_knows_its_hash_and_whether_it_only_reads() -> None:
    for name in scripts.names():
        script = scripts.load(name)
        assert script.sha == hashlib.sha1(script.source.encode(), usedforsecurity=False).hexdigest()
        assert script.source.startswith("#!lua")
        assert "--- @use" not in script.source
    assert {name for name in scripts.names() if scripts.load(name).readonly} == {
        "accounts",
        "assignment",
        "bindings",
        "dead",
        "fetch",
        "follow",
        "journal",
        "leased",
        "len",
        "lengths",
        "limits",
        "peek",
        "queues",
        "recount",
        "runs",
        "skip",
        "soonest",
        "stats",
        "status",
        "tenant",
        "waiting",
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


def test_a_read_of_many_is_the_same_to_the_script_and_to_its_caller() -> None:
    """The script delivers at once what lies in streams that were declared, and the caller declares more of them."""
    parts, _ = scripts.parts_in("due", scripts.root())
    (many,) = [part.text for part in parts if part.name == "MANY"]
    assert many.startswith(f"local MANY = {MANY} ")
