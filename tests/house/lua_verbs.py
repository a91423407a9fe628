"""The house's rules for verbs: the comment above a verb says what it does with KEYS and ARGV, and its flags are true.

A verb is judged with all functions that it reaches, since these get its KEYS in `q.keys`, or as a parameter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from luaparser import astnodes as lua

from tests.house.lua_modules import Modules, Verb
from tests.house.lua_scope import Function, RedisCall, Scope, Use, member

# fmt: off
READING = frozenset({
    "EXISTS", "HEXISTS", "HGET", "HGETALL", "HLEN", "HMGET", "HRANDFIELD", "HSCAN", "SISMEMBER", "TIME", "XLEN",
    "XRANGE", "XREVRANGE", "ZCARD", "ZCOUNT", "ZLEXCOUNT", "ZMSCORE", "ZRANGE", "ZRANGEBYLEX", "ZRANGEBYSCORE", "ZRANK",
    "ZREVRANGEBYSCORE", "ZSCORE",
})
# fmt: on
"""Commands that a verb with the flag `no-writes` may call."""
KEY_SECOND = frozenset({"XGROUP"})  # after a subcommand
KEY_AFTER_STREAMS = frozenset({"XREADGROUP"})
FROM_A_KEY = frozenset({"Messages.stream_key"})
"""Functions that return one of the declared keys."""
DESCRIBED = re.compile(r"-- (?:KEYS|ARGV)\[\d+(?:\.\.\d*)?\](?: \w+)?: \S")


def check(modules: Modules, verb: Verb) -> Iterator[str]:
    """What is wrong with one verb."""
    reached = [function for _, function in modules.reached(f"verbs.{verb.name}")]
    yield from header_is_whole(verb)
    yield from begins(verb)
    yield from arguments_are_true(verb, reached)
    yield from keys_are_true(verb, reached)
    yield from places_are_declared(modules, verb, reached)
    yield from no_built_keys(verb, reached)
    yield from flags_are_true(verb, reached)
    yield from one_time(verb, reached)


def header_is_whole(verb: Verb) -> Iterator[str]:
    """Each line for KEYS and ARGV names one and says what it is, and at the end stands what is replied."""
    for line in verb.header:
        if line.startswith(("-- KEYS", "-- ARGV")) and not DESCRIBED.match(line):
            yield f"a line is not `-- ARGV[1] name: what it is`: {line}"
    if not any(line.startswith("-- Reply: ") for line in verb.header):
        yield "its comment does not say what it replies"
    for table, names, more in (("KEYS", verb.keys, verb.rest), ("ARGV", verb.args, verb.more)):
        if sorted(names) != [*range(1, len(names) + 1)] or (more and more != len(names) + 1):
            yield f"its comment does not number its {table} from 1 on"


def begins(verb: Verb) -> Iterator[str]:
    """A verb first sets what is not there while a library is loaded."""
    first = verb.function.begins_with
    calls = [each.func.id for each in _block(first) if isinstance(each, lua.Call)] if first else []
    if calls != ["begin"]:
        yield "does not begin with `if not call then begin() end`"


def _block(node: Any) -> list[Any]:
    return list(node.body.body) if isinstance(node, lua.If) else []


def arguments_are_true(verb: Verb, reached: list[Function]) -> Iterator[str]:
    """The comment has exactly the ARGV that the verb uses."""
    uses = [use for each in reached for use in each.uses if use.table == "ARGV"]
    yield from _compared("ARGV", uses, verb.args, verb.more)


def keys_are_true(verb: Verb, reached: list[Function]) -> Iterator[str]:
    """The comment has exactly the KEYS that the verb uses; of the first ones of a queue it may have more."""
    own = {at: name for at, name in verb.keys.items() if at > verb.shared}
    uses = [use for each in reached for use in each.uses if use.table == "KEYS" and isinstance(use.index, int)]
    passed_on = any(use.index is None for each in reached for use in each.uses if use.table == "KEYS")
    uses = [use for use in uses if use.index > verb.shared]  # type: ignore[operator] # only numbers are left
    places = {str(use.index).lower() for each in reached for use in each.uses if isinstance(use.index, str)}
    itself = {use.index for use in uses}
    named = {at: name for at, name in own.items() if name not in places or at in itself}
    yield from _compared("KEYS", uses, named, verb.rest, passed_on=passed_on)


def _compared(
    table: str, uses: list[Use], named: dict[int, str], more: int, *, passed_on: bool | None = None
) -> Iterator[str]:
    numbers = {use.index for use in uses if isinstance(use.index, int)}
    computed = passed_on if passed_on is not None else any(use.index is None for use in uses)
    fixed = {at for at in numbers if not more or at < more}
    for at in sorted(fixed - {*named}):
        yield f"{table}[{at}] is used and not in its comment"
    for at in sorted({*named} - fixed):
        yield f"{table}[{at}] {named[at]} is in its comment and not used"
    if more and not (computed or numbers - fixed):
        yield f"{table}[{more}..] is in its comment and not used"
    if not more and computed and passed_on is None:
        yield f"{table} by a computed index, without a range in its comment"


def places_are_declared(modules: Modules, verb: Verb, reached: list[Function]) -> Iterator[str]:
    """Each key of a queue that a function takes by its place is there, under the name that its comment gives it."""
    places = modules.places
    given = {place: at for each in reached for place, at in each.given.items()}
    for place, at in given.items():
        if verb.keys.get(at) != place.lower():
            yield f"[{place}] = KEYS[{at}], which is another key in its comment"
    for each in reached:
        named = {name for name in each.refers if name in places}
        named |= {use.index for use in each.uses if isinstance(use.index, str)}
        for place in sorted(named - {*given}):
            if verb.keys.get(places[place]) != place.lower():
                yield f"reaches {each.name}, which takes {place}: KEYS[{places[place]}] is not that"


def no_built_keys(verb: Verb, reached: list[Function]) -> Iterator[str]:
    """No key is built in Lua: only declared keys are safe while a slot moves."""
    for each in reached:
        for call in each.calls:
            if call.command is None and each.name != "send":
                yield f"{each.name} calls a command that is not a literal (line {call.line})"
            elif (key := key_of(call)) is not None and _may_be_built(key, call.scope, set()):
                yield f"{each.name} calls {call.command} with a key that is built (line {call.line})"


def key_of(call: RedisCall) -> Any:
    """The key of a call, None if it has none."""
    command, rest = call.command or "", list(call.args[1:])
    if command in KEY_AFTER_STREAMS:
        words = [getattr(each, "s", b"") for each in rest]
        rest = rest[words.index(b"STREAMS") + 1 :] if b"STREAMS" in words else []
    elif command in KEY_SECOND:
        rest = rest[1:]
    return rest[0] if rest and command != "TIME" else None


def is_unpacked_keys(node: Any) -> bool:
    """Is *node* `unpack(KEYS, ...)`: several of the declared keys?"""
    return isinstance(node, lua.Call) and (getattr(node.func, "id", ""), getattr(node.args[0], "id", "")) == (
        "unpack",
        "KEYS",
    )


def _may_be_built(node: Any, scope: Scope, seen: set[int]) -> bool:
    """May *node* be a text that this code made?"""
    if isinstance(node, lua.AndLoOp | lua.OrLoOp):
        return _may_be_built(node.left, scope, seen) or _may_be_built(node.right, scope, seen)
    if isinstance(node, lua.Name):
        local = scope.find(node.id)
        if local is None or id(local) in seen:
            return False
        return any(_may_be_built(value, where, seen | {id(local)}) for value, where in local.values)
    if isinstance(node, lua.Call):
        return member(node.func) not in FROM_A_KEY and not is_unpacked_keys(node)
    return isinstance(node, lua.Concat | lua.String)


def flags_are_true(verb: Verb, reached: list[Function]) -> Iterator[str]:
    """With `no-writes` a verb only reads, on a replica, too; what only reads has that flag."""
    writing = {(each.name, call.command) for each in reached for call in each.calls if call.command not in READING}
    writing = {(name, command) for name, command in writing if name != "send"}
    if "no-writes" in verb.flags:
        yield from (f"has no-writes and reaches {name}, which calls {command}" for name, command in sorted(writing))
    elif not writing:
        yield "only reads, and lacks the flag no-writes"


def one_time(verb: Verb, reached: list[Function]) -> Iterator[str]:
    """A call has one time. Where it ends for want of a queue, it may look at the clock for its reply alone."""
    own = verb.function.outside_return.count("read_time")
    asked = [each.name for each in reached for call in each.calls if call.command == "TIME"]
    looped = [each.name for each in reached for call in each.calls if call.command == "TIME" and call.in_loop]
    yield from (f"{name} asks for the time in a loop" for name in looped)
    others = [name for name in asked if name != "read_time"]
    if own + len(others) > 1:
        yield "asks for the time more than once"
