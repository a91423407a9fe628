"""Which commands a verb runs on which keys is read from the Lua text, through all functions that it reaches."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardq.protocol.rights import RIGHTS
from tests.house import lua_rights
from tests.house.lua_modules import Modules
from tests.house.lua_rights import Rights

BASE = """-- What all modules use.
local META = 1
local LEASES = 2

local function send(q, name, command, place) call(command, q.keys[place], unpack(q.lists[name])) end

local function add(q, name, one) q.lists[name] = {one} end

local verbs = {}
"""
TURNS = """-- Whose turn it is.
local function look_at(hashes, sorted_sets)
  for _, key in ipairs(hashes) do call('HLEN', key) end
  for _, key in ipairs(sorted_sets) do call('ZCARD', key) end
end

function Turns.forget(index, hash)
  call('ZREM', index, 'x')
  call('HDEL', hash, 'x')
end

function Turns.open(KEYS)
  look_at({KEYS[META]}, {KEYS[LEASES]})
  call('TIME')
  return {keys = KEYS, hash = KEYS[3], found = 5}
end

function Turns.create(KEYS) call('HSETNX', KEYS[META], '', '') end
"""
VERBS = """-- Verbs.

-- @verb settle: end leases
-- KEYS[1..2]: the first 2 of a queue
-- KEYS[3] results: what is kept
-- KEYS[4..] streams: of the bodies
-- ARGV[1] kind: of the end
-- Reply: now
function verbs.settle(KEYS, ARGV)
  local q = Turns.open(KEYS)
  if call('EXISTS', unpack(KEYS, 1, 3)) < 3 then Turns.create(KEYS) end
  local meta = q.keys[META]
  Turns.forget(q.keys[LEASES], meta)
  if ARGV[1] == 'r' then call('HSET', q.hash, 'a', 'b') end
  for at = 4, #KEYS do call('XDEL', KEYS[at], '1-1') end
  call('XGROUP', 'SETID', KEYS[#KEYS], 'group', '$')
  add(q, 'sent', 'x')
  send(q, 'sent', 'ZADD', LEASES)
  send(q, 'never', 'DEL', META)
end
"""


@pytest.fixture
def modules(tmp_path: Path) -> Modules:
    """A library of one verb."""
    (tmp_path / "order.txt").write_text("base\nturns\nverbs\n")
    for name, text in (("base", BASE), ("turns", TURNS), ("verbs", VERBS)):
        (tmp_path / f"{name}.lua").write_text(text)
    return Modules(tmp_path)


def test_keys_are_followed_through_parameters_fields_locals_and_loops(modules: Modules) -> None:
    (verb,) = modules.verbs
    found = {
        "": {"time"},
        "any": {"exists"},
        "meta": {"hlen", "hdel", "hsetnx"},
        "leases": {"zcard", "zrem", "zadd"},
        "results": {"hset"},
        "streams": {"xdel"},
        "legacy": {"xgroup|setid"},
    }
    assert Rights(modules, verb).found == found
    without = Rights(modules, verb, "Turns.create").found
    assert without == found | {"meta": {"hlen", "hdel"}}


def test_a_key_that_cannot_be_told_is_an_error(modules: Modules) -> None:
    path = modules.folder / "verbs.lua"
    path.write_text(path.read_text().replace("q.keys[LEASES], meta", "q.keys[LEASES], q.found"))
    with pytest.raises(LookupError, match=r"Turns\.forget of settle: cannot tell the key of hdel"):
        Rights(Modules(modules.folder), Modules(modules.folder).verbs[0])


def test_a_table_that_is_not_of_the_modules_is_stale(
    modules: Modules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "rights.py"
    monkeypatch.setattr(lua_rights, "MADE", made)
    monkeypatch.setattr(lua_rights, "lines", lambda modules: ["a line"])
    assert lua_rights.is_stale(modules)
    made.write_text(lua_rights.text(modules))
    assert not lua_rights.is_stale(modules)
    made.write_text(made.read_text() + "\n")
    assert lua_rights.is_stale(modules)


def test_who_only_writes_scans_nothing_in_the_real_library() -> None:
    scans = {"hgetall", "hscan", "hrandfield", "xrange", "zrandmember", "zrange", "zscan"}
    assert {word for words in RIGHTS["write"].values() for word in words.split()} & scans == set()
