"""The house's rules for verbs: the comment above a verb says what it does with KEYS and ARGV, and its flags are true.

A verb is judged with all functions that it reaches, since these get its KEYS in `q.keys`, or as a parameter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from luaparser import astnodes as lua

from tests.house.lua_modules import Modules, Verb
from tests.house.lua_scope import GATE, Function, RedisCall, Scope, Use, member

# fmt: off
READING = frozenset({
    "EXISTS", "HEXISTS", "HGET", "HGETALL", "HLEN", "HMGET", "HRANDFIELD", "HSCAN", "SISMEMBER", "TIME", "XLEN",
    "XRANGE", "XREVRANGE", "ZCARD", "ZCOUNT", "ZLEXCOUNT", "ZMSCORE", "ZRANDMEMBER", "ZRANGE", "ZRANGEBYLEX",
    "ZRANGEBYSCORE", "ZRANK", "ZREVRANGEBYSCORE", "ZSCORE",
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
    yield from gate_is_whole(modules, verb)
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
    first = next(iter(verb.function.body), None)
    calls = [each.func.id for each in _block(first) if isinstance(each, lua.Call)] if first else []
    if calls != ["begin"]:
        yield "does not begin with `if not call then begin() end`"


def _block(node: Any) -> list[Any]:
    return list(node.body.body) if isinstance(node, lua.If) else []


OWN_GATE = {
    "write": "a single write is the commonest call: its head and its messages are looked at as they are taken apart",
    "read": "a single read is as common: so is its head",
    "beat": "nearly all tell of a worker alone: its id and row are looked at first, and all else by the gate",
    "settle": "an ack is as common: tokens are looked at as they are taken apart",
}
"""Verbs that look at ARGV themselves, and refuse what is wrong by `Arguments.refuse`; each with the reason."""
MOST_KEYS = 28
NO_QUEUE = {"register": "check_shared", "queues": "check_shared", "remember": "check_own", "skip": ""}
"""Verbs of which the first key is another than those of a queue, with what looks at it; `skip` reads any stream."""


def gate_is_whole(modules: Modules, verb: Verb) -> Iterator[str]:
    """A verb first has the gate look at all that it is given: at each of ARGV, and at each key that has a name."""
    gate = dict(_gate_of(verb))
    own = verb.name in OWN_GATE
    reached = [each for _, each in modules.reached(f"verbs.{verb.name}")]
    if own and not any(site.name == "Arguments.refuse" for each in reached for site in each.sites):
        yield "looks at its arguments itself, and refuses none"
    if (verb.args or verb.more) and not own:
        yield from _kinds_are_right(modules, verb, gate.get("check", []))
    if verb.name in NO_QUEUE:
        checked = NO_QUEUE[verb.name] in {"", *gate}
    elif verb.shared:
        calls = {site.name for each in reached for site in each.sites}
        checked = {"Arguments.check_plain", "Arguments.check_first"} <= calls if own else _names_all(verb, gate)
    else:
        names = [each.replace("-", "_") for each in _texts(gate.get("check_keys", [None, None])[1])]
        checked = names == [verb.keys[at] for at in sorted(verb.keys)]
    if not checked:
        yield "has keys at which the gate does not look as its comment names them"


def _gate_of(verb: Verb) -> Iterator[tuple[str, list[Any]]]:
    """The calls of the gate with which a verb begins, by the names of its functions."""
    for node in verb.function.body[1:]:
        name = member(node.func) if isinstance(node, lua.Call) else ""
        if name.startswith(GATE):
            yield name.removeprefix(GATE), list(node.args)


def _kinds_are_right(modules: Modules, verb: Verb, args: list[Any]) -> Iterator[str]:
    if len(args) < 2:
        yield "does not begin with `Arguments.check(ARGV, {...})`"
        return
    kinds, row = _texts(args[1]), _texts(args[2]) if len(args) > 2 else []
    if len(kinds) != len(verb.args) or bool(row) != bool(verb.more) or len(args) == 3:
        yield "has another number of arguments in its comment than the gate looks at"
    known = kinds_of(modules)
    yield from (f"{kind} is no kind of argument" for kind in {*kinds, *row} if kind not in known)


def kinds_of(modules: Modules) -> set[str]:
    """The kinds that the gate knows."""
    (table,) = [each.walk.constants["KINDS"][1] for each in modules.all if f"{each.own}." == GATE]
    return {each.key.s.decode() for each in table.fields}


def _texts(node: Any) -> list[str]:
    return [each.value.s.decode() for each in node.fields] if isinstance(node, lua.Table) else []


def _names_all(verb: Verb, gate: dict[str, list[Any]]) -> bool:
    """Whether the gate looks at all keys that have a name."""
    _, *sizes = gate.get("check_first", [None])
    size = int(sizes[0].n) if sizes and isinstance(sizes[0], lua.Number) else MOST_KEYS
    return bool(sizes) and size + len(sizes) - 1 == len(verb.keys)


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
        if at != verb.rest and verb.keys.get(at) != place.lower():
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
