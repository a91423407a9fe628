"""Each of the house's rules for Lua can fail. `make lua` holds the library to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house import lua_lint
from tests.house.lua_modules import Modules

BASE = """-- What all modules use.
local call
local pcall_redis
local min

local function begin()
  call = redis.call
  pcall_redis = redis.pcall
  min = math.min
end

local META = 1
local LEASES = 2

-- Sends a list with its command.
local function send(q, name, command, place)
  call(command, q.keys[place], unpack(q[name])) -- at most 4,000: a part
end

local function read_time() return min(call('TIME')[1], 9) end

local verbs = {}
"""
GATE = """-- The gate.
local KINDS = {
  ['kind'] = {'^%l$', 1},
  ['token'] = {'.', 100},
}

function Arguments.check(words, kinds, row, most) return #words - #kinds - #row <= most and KINDS end

function Arguments.check_first(keys, size) return #keys >= size end

function Arguments.check_keys(keys, names) return #keys >= #names end
"""
TURNS = """-- Whose turn it is.
Turns.MOST = 5

function Turns.open(KEYS)
  local epoch, size = unpack(call('HMGET', KEYS[META], 'epoch', 'size')) -- at most 2: the fields
  return epoch and {keys = KEYS, size = size}
end

function Turns.end_lease(q, token)
  if q.size + 0 < Turns.MOST then call('ZREM', q.keys[LEASES], token) end
end
"""
VERBS = """-- Verbs.

-- @verb finish | allow-oom: end leases
-- KEYS[1..2]: the first 2 of a queue
-- KEYS[3..] streams: of the bodies
-- ARGV[1] kind: of the end
-- ARGV[2..] tokens: of the leases
-- Reply: now
function verbs.finish(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 2)
  Arguments.check(ARGV, {'kind'}, {'token'}, 9)
  local q = Turns.open(KEYS)
  if not q then return read_time() end
  for at = 2, #ARGV do
    Turns.end_lease(q, ARGV[at])
    call('XDEL', KEYS[at + 1], ARGV[1])
  end
  send(q, 'late', 'ZREM', LEASES)
  if pcall_redis('HGET', KEYS[META], 'x').err then return Turns.MOST end
end

-- @verb look | no-writes: look at a lease
-- KEYS[1] dead: letters
-- ARGV[1] token: of the lease
-- Reply: when it ends
function verbs.look(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'dead'})
  Arguments.check(ARGV, {'token'})
  return call('XRANGE', KEYS[1], ARGV[1], ARGV[1])
end
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A library that breaks no rule."""
    (tmp_path / "order.txt").write_text("base\narguments\nturns\nverbs\n")
    for name, text in (("base", BASE), ("arguments", GATE), ("turns", TURNS), ("verbs", VERBS)):
        (tmp_path / f"{name}.lua").write_text(text)
    return tmp_path


def check(folder: Path, module: str, right: str, wrong: str) -> list[str]:
    """What is wrong where *right* in a module is *wrong*."""
    path = folder / f"{module}.lua"
    text = path.read_text()
    assert text.count(right) == 1, f"{text.count(right)} times: {right}"
    path.write_text(text.replace(right, wrong))
    return lua_lint.check(Modules(folder))


def test_a_good_library_passes(folder: Path) -> None:
    assert lua_lint.check(Modules(folder)) == []


END = "function Turns.end_lease(q, token)\n"
OPEN = "  local epoch, size"


@pytest.mark.parametrize(
    ("right", "wrong", "problem"),
    [
        ("-- Whose turn it is.", "-- " + "x" * 118, "turns:1: the line has 121 letters"),
        ("-- Whose turn it is.\n", "", "turns:1: does not begin with a comment"),
        (" -- at most 2: the fields", "", "turns:5: unpack without a bound"),
        (" -- at most 2: the fields", " -- a few", "turns:5: unpack without a bound"),
        (" -- at most 2: the fields", " -- at most 8,000: the fields", "turns:5: unpack of more than 7,900"),
        (END, END + "\n" * 38, "turns:9: a function of 41 lines"),
        (END, END + "  local f = function()\n" + "\n" * 39 + "  end\n  f()\n", "turns:10: a function of 41 lines"),
        (END, END + "  q.size = 1 q.size = 2\n", "turns:10: a second statement on the line"),
        (END, END + "  q.size = 1; q.size = 2\n", "turns:10: a second statement on the line"),
        (END, END + "  if q then q.size = 1 q.size = 2 end\n", "turns:10: a second statement on the line"),
        (END, END + "  local one, two = min(1, 2), q.size\n  q.size = one + two\n", "turns:10: several names in one"),
        (END, END + "  local One = 1\n  q.size = One\n", "turns:10: One is not spelled in small letters"),
        ("Turns.MOST = 5", "Turns.MOST = min(1, 2)", "turns:2: Turns.MOST is not a number, a text or a list"),
        ("Turns.MOST = 5", "Turns.MOST = 5\nlocal last = 0\nfunction Turns.f() last = 1 end", "last outlives a call"),
        (
            "Turns.MOST = 5",
            "Turns.MOST = 5\nlocal seen = {}\nfunction Turns.f(x) seen[x] = 1 end",
            "seen outlives a call",
        ),
        (
            "Turns.MOST = 5",
            "Turns.MOST = 5\nTurns.f = {}\nfunction Turns.g(x) Turns.f[x].y = 1 end",
            "Turns.f outlives",
        ),
        (
            "Turns.MOST = 5",
            "Turns.MOST = 5\nlocal f = {}\nfunction Turns.g(x) keep(f, 0, x, 1) end",
            "f outlives a call",
        ),
        ("Turns.MOST = 5", "Turns.MOST = 5\ncall('TIME')", "turns:3: neither a constant nor a function"),
        (END, END + "  size = 1\n", "turns:10: global size is written"),
        (END, END + "  local one = 1\n", "turns:10: one is not used"),
        (END, END.replace("token", "token, more"), "turns:9: more is not used"),
        (END, "local function again() return again() end\n" + END, "turns:9: again is not used"),
        (END, END + "  q.size = tokens\n", "turns:10: tokens is no name of Lua that may be used, of the base, or of"),
        (END, END + "  q.size = table.concat(q)\n", "turns:10: table.concat is no name of Lua that may be used"),
        (END, END + "  q.size = cjson.encode(q)\n", "turns:10: cjson.encode is no name of Lua that may be used"),
        (END, END + "  q.size = Verbs.MOST\n", "turns:10: Verbs.MOST is no name"),
        (END, "function Turns.other() end\n" + END, "turns: no other module uses Turns.other"),
        (END, END + "  q.size = q.sizes\n", "turns:10: field sizes is read and never set"),
        (END, END + "  q.sizes = 1\n", "turns:10: field sizes is set and never read"),
        (END, END + "  q.size = = 1\n", "does not compile as Lua 5.1"),
    ],
)
def test_each_rule_for_modules_can_fail(folder: Path, right: str, wrong: str, problem: str) -> None:
    found = check(folder, "turns", right, wrong)
    assert any(problem in each for each in found), found


@pytest.mark.parametrize(
    "good",
    [
        "  local one, two = q.size, q.keys or 0\n  q.size, q.keys = one, two\n",
        "  local one, two, three = {}, 0, tonumber(q.size)\n  q.size, q.keys = one[two], three\n",
        "  local _, two = unpack(q.keys) -- at most 2: the parts\n  q.size = two\n",
        "  if q then q.size = 1 else q.size = 2 end\n",
        "  for _, each in ipairs(q) do q.size = each end\n",
    ],
)
def test_what_is_said_as_shortly_passes(folder: Path, good: str) -> None:
    assert check(folder, "turns", END, END + good) == []


def test_a_module_uses_only_what_comes_before_it(folder: Path) -> None:
    (folder / "order.txt").write_text("base\narguments\nverbs\nturns\n")
    found = lua_lint.check(Modules(folder))
    assert "verbs:13: Turns.open is of turns.lua, which comes later" in found


def test_what_the_base_has_is_used(folder: Path) -> None:
    found = check(folder, "base", "local verbs = {}", "local function late() end\nlocal max = 1\nlocal verbs = {}")
    assert found == ["base: nothing uses max", "base: nothing uses late"]


FIRST = "-- KEYS[1..2]: the first 2 of a queue\n-- KEYS[3..] streams"
FINISH = (
    "-- Reply: now\nfunction verbs.finish(KEYS, ARGV)\n  if not call then begin() end\n"
    "  Arguments.check_first(KEYS, 2)\n  Arguments.check(ARGV, {'kind'}, {'token'}, 9)\n"
)


@pytest.mark.parametrize(
    ("right", "wrong", "problem"),
    [
        ("-- Reply: now\n", "", "finish: its comment does not say what it replies"),
        ("-- ARGV[1] kind: of the end", "-- ARGV[1] kind", "finish: a line is not `-- ARGV[1] name: what it is`"),
        ("-- ARGV[1] kind: of the end\n", "", "finish: its comment does not number its ARGV from 1 on"),
        ("-- ARGV[2..] tokens: of the leases\n", "", "finish: ARGV by a computed index, without a range"),
        (
            "-- ARGV[2..] tokens",
            "-- ARGV[2] more: of it\n-- ARGV[3..] tokens",
            "ARGV[2] more is in its comment and not used",
        ),
        (
            "of the lease\n-- Reply: when",
            "of it\n-- ARGV[2..] more: of it\n-- Reply: when",
            "ARGV[2..] is in its comment",
        ),
        ("ARGV[1], ARGV[1])", "ARGV[1], ARGV[2])", "look: ARGV[2] is used and not in its comment"),
        ("KEYS[1], ARGV[1], ARGV[1])", "KEYS[2], ARGV[1], ARGV[1])", "look: KEYS[2] is used and not in its comment"),
        ("KEYS[1], ARGV[1], ARGV[1])", "KEYS[2], ARGV[1], ARGV[1])", "look: KEYS[1] dead is in its comment and not"),
        (FINISH, FINISH.replace("  if not call then begin() end\n", ""), "finish: does not begin with `if not call"),
        ("KEYS[1], ARGV[1], ARGV[1])", "KEYS[META], ARGV[1], ARGV[1])", "verbs.look, which takes META: KEYS[1] is not"),
        (
            FIRST,
            "-- KEYS[1] meta: the state\n-- KEYS[2..] streams",
            "reaches Turns.end_lease, which takes LEASES: KEYS[2]",
        ),
        ("Turns.open(KEYS)", "Turns.open({[META] = KEYS[2]})", "finish: [META] = KEYS[2], which is another key"),
        ("KEYS[at + 1], ARGV[1])", "'s' .. at, ARGV[1])", "finish: verbs.finish calls XDEL with a key that is built"),
        (
            FINISH,
            FINISH + "  local key = KEYS[META] .. ':x'\n  call('DEL', key)\n",
            "calls DEL with a key that is built",
        ),
        (
            "call('XDEL', KEYS[at + 1]",
            "call(ARGV[1], KEYS[at + 1]",
            "verbs.finish calls a command that is not a literal",
        ),
        (" | no-writes: look", ": look", "look: only reads, and lacks the flag no-writes"),
        (
            " | allow-oom: end",
            " | no-writes: end",
            "finish: has no-writes and reaches Turns.end_lease, which calls ZREM",
        ),
        (" | allow-oom: end", " | no-writes: end", "finish: has no-writes and reaches verbs.finish, which calls ZREM"),
        (FINISH, FINISH + "  KEYS.now = read_time()\n  KEYS.now = read_time()\n", "asks for the time more than once"),
        ("  for at = 2, #ARGV do\n", "  for at = 2, #ARGV do\n    call('TIME')\n", "asks for the time in a loop"),
        ("  Arguments.check(ARGV, {'token'})\n", "", "look: does not begin with `Arguments.check(ARGV, {...})`"),
        (
            "  Arguments.check(ARGV, {'token'})\n",
            "  Arguments.check(ARGV, {})\n",
            "look: has another number of arguments",
        ),
        (", {'token'}, 9)", ")", "finish: has another number of arguments in its comment"),
        ("(ARGV, {'token'})", "(ARGV, {'tokens'})", "look: tokens is no kind of argument"),
        ("  Arguments.check_first(KEYS, 2)\n", "", "finish: has keys at which the gate does not look"),
        ("check_first(KEYS, 2)", "check_first(KEYS, 1)", "finish: has keys at which the gate does not look"),
        ("(KEYS, {'dead'})", "(KEYS, {'deaf'})", "look: has keys at which the gate does not look"),
    ],
)
def test_each_rule_for_verbs_can_fail(folder: Path, right: str, wrong: str, problem: str) -> None:
    found = check(folder, "verbs", right, wrong)
    assert any(problem in each for each in found), found


def test_a_reason_why_something_outlives_a_call_that_does_not_is_found(folder: Path) -> None:
    assert "rules: Rules.known has a reason in KEPT, and outlives no call" in lua_lint.unused_reasons(Modules(folder))


def test_the_library_passes() -> None:
    assert lua_lint.check(Modules(lua_lint.FOLDER)) == []
