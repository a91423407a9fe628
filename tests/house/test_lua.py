"""Each of the house's rules for Lua can fail. `make lua` holds lua/ to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house import lua_lint

HEADER = "-- purpose\n-- KEYS[1] meta: m\n-- ARGV[1] count: c\n-- Reply: r\n"
TOP = "local meta = KEYS[1]\nlocal count = ARGV[1]\n"


def check(body: str, header: str = HEADER, top: str = TOP) -> list[str]:
    text = header + top + body
    return lua_lint.check(lua_lint.Source("fixture", text, text))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("redis.call('DEL', unpack(keys))", "unpack without a bound"),
        ("redis.call('DEL', unpack(keys)) -- a few", "unpack without a bound"),
        ("redis.call('DEL', unpack(keys)) -- at most 8,000", "unpack of more than 7,900"),
        ("redis.call('DEL', unpack(keys)) -- at most 500: a chunk", ""),
        ("in_parts(keys, function(from, upto) redis.call('DEL', unpack(keys, from, upto)) end)", ""),
        ("-- unpack(keys) ends at 8,000", ""),
    ],
)
def test_every_unpack_states_its_bound(line: str, problem: str) -> None:
    assert [problem in each for each in lua_lint.unbounded(f"local keys = {{}}\n{line}\n")] == [True] * bool(problem)


@pytest.mark.parametrize(
    "body",
    [
        "return redis.call('HINCRBY', meta, 'n', count)",
        "local t = {}\nfor i, v in ipairs(t) do redis.call('DEL', t[i]) redis.call('DEL', v) end\nreturn {meta, count}",
        "local function f(key, ...) return redis.call('GET', key), ... end\nreturn f(meta, count)",
        "local t = {count = count, meta}\nt.count = ('x'):rep(3)\nreturn {t.count, #t}",
        "local entry = {'XADD', meta, '*'}\nentry[4] = count\nreturn redis.call(unpack(entry))",
        "local n = 0\nrepeat local done = n > 3; n = n + 1 until done\nreturn {meta, count}",
        "local now = redis.call('TIME')\nreturn {now[1], redis.call('XINFO', 'STREAM', meta), count}",
        "return redis.call('XREADGROUP', 'GROUP', 'g', 'c', 'COUNT', count, 'STREAMS', meta, '>')",
        "if meta then return count elseif count then return {meta} else return meta .. count end",
    ],
)
def test_good_scripts_pass(body: str) -> None:
    assert check(body) == []


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("local x = 5 // 2 return {meta, count, x}", "does not compile as Lua 5.1"),
        ("goto done ::done:: return {meta, count}", "does not compile as Lua 5.1"),
        ("total = 1 return {meta, count}", "global total is written"),
        ("function total() end return {meta, count}", "global total is written"),
        ("return {meta, count, total}", "global total is not allowed"),
        ("return {meta, cjson.encode(count)}", "global cjson is not allowed"),
        ("return {meta, count, os.time()}", "global os is not allowed"),
        ("local idle = 1 return {meta, count}", "local idle is never read"),
        ("local idle idle = 2 return {meta, count}", "local idle is never read"),
        ("for at, v in ipairs({}) do redis.call('DEL', v) end return {meta, count}", "local at is never read"),
        ("return {meta, count, KEYS[2]}", "KEYS[2] is used but not in the header"),
        ("return {meta, count, ARGV[2]}", "ARGV[2] is used but not in the header"),
        ("return {meta, count, KEYS[1]}", "KEYS[1] in the body"),
        ("if count then local again = KEYS[1] return again end return meta", "KEYS[1] in the body"),
        ("for i = 1, 2 do redis.call('DEL', KEYS[i]) end return {meta, count}", "KEYS by a computed index"),
        ("return {meta, count, #ARGV}", "ARGV by a computed index"),
        ("return redis.call('GET', meta .. count)", "the key of GET is neither"),
        ("return redis.call('GET', 'name', meta, count)", "the key of GET is neither"),
        ("return redis.call('XINFO', 'STREAM', meta .. count)", "the key of XINFO is neither"),
        ("return redis.call('XREAD', 'STREAMS', meta .. count, '0')", "the key of XREAD is neither"),
        ("local key = meta .. count return redis.call('GET', key)", "the key of GET, key, is built from text"),
        ("local key key = string.rep(meta, count) return redis.call('GET', key)", "key, is built from text"),
        ("local a = meta .. count local b = a return redis.call('GET', b)", "b, is built from text"),
        ("return redis.call(count, meta)", "the command of redis.call is not a literal"),
        ("local t = {count} return redis.call(unpack(t), meta)", "the command of redis.call is not a literal"),
        ("local t = {'GET', meta .. count} return redis.call(unpack(t))", "the key of GET is neither"),
        ("local call = redis.call return call('GET', meta, count)", "redis.call is passed on"),
        ("return {redis.call('TIME'), redis.call('time'), meta, count}", "TIME is called again"),
        ("while count do redis.call('TIME') end return meta", "TIME is called in a loop"),
        ("return {meta, count, unpack(ARGV)}", "unpack(ARGV) fails"),
        ("return {meta, count, unpack(KEYS, 2)}", "unpack(KEYS) fails"),
    ],
)
def test_each_rule_for_bodies_can_fail(body: str, problem: str) -> None:
    assert any(problem in each for each in check(body)), check(body)


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("#!lua name=x\n" + HEADER, "not a `#!lua` or"),
        (HEADER.replace("-- purpose\n", ""), "does not begin with the purpose"),
        (HEADER.replace("-- Reply: r\n", ""), "no `-- Reply:` line"),
        (HEADER.replace("meta: m", "meta"), "not `-- KEYS[n] name: meaning`"),
        (HEADER.replace("meta: m", "mate: m"), "KEYS[1] is mate in the header and meta in the code"),
        (HEADER + "-- KEYS[2] more: m\n", "KEYS[2] is in the header but not used"),
        (HEADER + "-- ARGV[2] more: m\n", "ARGV[2] is in the header but not used"),
        (HEADER + "-- KEYS[2..] streams: s\n", "KEYS[2..] is in the header but not used"),
    ],
)
def test_each_rule_for_headers_can_fail(header: str, problem: str) -> None:
    found = check("return {meta, count}", header=header)
    assert any(problem in each for each in found), found


STRAIGHT = "--- @straight\nif count == '1' then return count end\n"
TABLE = "local q = {meta = KEYS[1], count = count}\n"
USES = "return redis.call('HINCRBY', q.meta, 'n', q.count)"


@pytest.mark.parametrize("between", ["", "local more = redis.call('TIME')\nlocal function f() return more, f end\n"])
def test_the_context_table_may_bind_keys_at_the_head_of_the_general_part(between: str) -> None:
    assert check(f"{STRAIGHT}--- @general\n{between}{TABLE}{USES}", top="local count = ARGV[1]\n") == []


@pytest.mark.parametrize(
    "body",
    [
        STRAIGHT + TABLE + USES,  # no general part is said to begin
        f"{STRAIGHT}--- @general\nredis.call('PUBLISH', 'x', 'y')\n{TABLE}{USES}",
        f"{STRAIGHT}--- @general\nif count then {TABLE}{USES} end",
        f"{STRAIGHT}--- @general\nlocal function f() {TABLE}{USES} end\nreturn f()",
        f"{STRAIGHT}--- @general\nlocal q = {{count = count}}\n{TABLE}{USES}",
        f"{STRAIGHT}--- @general\nlocal meta = KEYS[1]\nreturn {{meta, count}}",
        f"--- @straight\nif count then {TABLE}{USES} end\n--- @general\n{TABLE}{USES}",
    ],
)
def test_no_other_place_behind_the_head_binds_keys(body: str) -> None:
    found = check(body, top="local count = ARGV[1]\n")
    assert any("KEYS[1] in the body" in each for each in found), found


def test_a_range_in_the_header_allows_a_computed_index() -> None:
    header = HEADER + "-- KEYS[2..] streams: s\n-- ARGV[2..] pairs: p\n"
    assert check("for i = 2, #KEYS do redis.call('SET', KEYS[i], ARGV[i]) end return {meta, count}", header) == []


def test_keys_are_bound_before_the_first_statement() -> None:
    late = "redis.call('PUBLISH', 'x', 'y')\n" + TOP
    assert any("KEYS[1] in the body" in each for each in check("return {meta, count}", top=late))


# --- modules, and the verbs that use them


CONTEXT = "local q = {meta = KEYS[1], count = ARGV[1]}\n"
LONG = "local function f()\n" + "\n" * 24 + "end\n"


def test_the_fields_of_the_context_bind_keys() -> None:
    assert (
        check("return redis.call('GET', q.meta) + q.count", top="local q = {meta = KEYS[1], count = ARGV[1]}\n") == []
    )


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("return {q.meta, q.count, q.lens}", "q.lens is read and never set"),
        ("return {q.meta}", "q.count is set and never read"),
        ("q.key = 'x' return {q.count, redis.call('GET', q.key, q.meta)}", "the key of GET, q.key, is not one of KEYS"),
        ("if q.meta then q = {q.count, KEYS[1]} end", "KEYS[1] in the body"),
        (
            "local function f()\n" + "\n" * 24 + "end\nreturn {q.meta, q.count, f}",
            "a function of 26 lines, more than 25",
        ),
    ],
)
def test_each_rule_for_verbs_can_fail(body: str, problem: str) -> None:
    found = check(body, top=CONTEXT)
    assert any(problem in each for each in found), found


def test_a_key_has_the_name_of_the_header_in_the_context() -> None:
    found = check("return {q.mate, q.count}", top="local q = {mate = KEYS[1], count = ARGV[1]}\n")
    assert any("KEYS[1] is meta in the header and mate in the code" in each for each in found), found


GOOD = "-- Leases.\n--- @use time\nlocal MOST = 60 * 2\n\n-- Says how many.\nlocal function count_all(q)\n"
GOOD += "  return q.n + MOST + read_clock()\nend\n"
CLOCK = "-- Time.\n\n-- Returns it.\nlocal function read_clock()\n  return 1\nend\n"
VERB = "-- purpose\n--- @use leases\nlocal q = {n = 1}\nreturn count_all(q)\n"


def check_modules(folder: Path, leases: str = GOOD, clock: str = CLOCK, verb: str = VERB) -> list[str]:
    (folder / "modules").mkdir()
    (folder / "modules" / "leases.lua").write_text(leases)
    (folder / "modules" / "time.lua").write_text(clock)
    (folder / "verb.lua").write_text(verb)
    return lua_lint.check_files(folder)


def test_good_modules_pass(tmp_path: Path) -> None:
    assert check_modules(tmp_path) == []


def test_a_line_of_the_new_engine_is_no_wider_than_a_window(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "turns.lua").write_text(f"-- {'x' * 117}\n-- {'x' * 118}\n")
    assert check_modules(tmp_path) == ["engine/turns: 2: the line has 121 letters, more than 120"]


@pytest.mark.parametrize(
    ("leases", "problem"),
    [
        (GOOD.replace("-- Leases.\n", ""), "leases: does not begin with a comment"),
        (GOOD + "redis.call('TIME')\n", "9: neither a constant nor a function"),
        (GOOD + "local seen = 1\n", "9: not named `CONSTANT`"),
        (GOOD + "local A, B = 1, 2\n", "9: not named `CONSTANT`"),
        (GOOD + "local SEEN = {}\n", "9: SEEN is not a number or a text"),
        (GOOD + "local SEEN\n", "9: SEEN is not a number or a text"),
        (GOOD + "-- It.\nlocal function count() end\n", "function count is not named `verb_noun`"),
        (GOOD + "local function count_none() end\n", "9: no comment above"),
        (GOOD + "-- It.\nlocal function count_up() MOST = 1 end\n", "MOST is assigned again"),
        (GOOD + "-- It.\nlocal function count_up() most = 1 end\n", "global most is written"),
        (GOOD + "-- It.\nlocal function count_up() return now end\n", "10: now is neither a parameter"),
        (GOOD + "-- It.\nlocal function count_up() return KEYS[1] end\n", "10: KEYS in a module"),
        (GOOD + "-- It.\nlocal function count_up() return #ARGV end\n", "10: ARGV in a module"),
        (GOOD + "-- It.\nlocal function count_up()\n" + "\n" * 24 + "end\n", "10: a function of 26 lines"),
        (GOOD + "-- It.\nlocal function count_up() return 1 end\n", "no verb uses count_up"),
        (GOOD + "-- It.\nlocal function read_clock() return 1 end\n", "read_clock is defined in 2 places"),
        (GOOD.replace(" + read_clock()", ""), "leases: uses nothing of time"),
        (GOOD.replace("--- @use time\n", ""), "6: read_clock is neither a parameter"),
    ],
)
def test_each_rule_for_modules_can_fail(leases: str, problem: str, tmp_path: Path) -> None:
    found = check_modules(tmp_path, leases)
    assert any(problem in each for each in found), found


def test_modules_do_not_use_each_other_in_a_circle(tmp_path: Path) -> None:
    clock = CLOCK.replace("-- Time.\n", "-- Time.\n--- @use leases\n").replace("return 1", "return MOST")
    found = check_modules(tmp_path, clock=clock)
    assert [each for each in found if "uses itself" in each] == [
        "modules/leases: uses itself through others",
        "modules/time: uses itself through others",
    ]


@pytest.mark.parametrize(
    ("verb", "problem"),
    [
        (VERB.replace("use leases", "use leases, time"), "2: nothing of time is used below"),
        (VERB + "return unpack(q)\n", "5: unpack without a bound"),
    ],
)
def test_each_rule_for_uses_can_fail(verb: str, problem: str, tmp_path: Path) -> None:
    found = check_modules(tmp_path, verb=verb)
    assert any(problem in each for each in found), found
