"""What one module of the library does: the names that its functions use, their KEYS and ARGV, their calls to Redis.

A walk over luaparser's syntax tree with Lua's scoping. It only collects: `lua_modules` joins the modules, `lua_lint`
judges.
"""

# ruff: noqa: N802 - a visitor is named after luaparser's class
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from luaparser import astnodes as lua

from tests.house.lua_trees import Node, parsed

ARGUMENTS = ("KEYS", "ARGV")
"""What a verb is called with. A function that gets one of them as a parameter of that name works for the verb."""

GATE = "Arguments."
"""The module that looks at KEYS and ARGV begins so."""

BEGIN = "begin"
"""The base's function that finds the functions of Redis and of Lua, once."""

CALLS = ("call", "pcall_redis")
"""The base's names for `redis.call` and `redis.pcall`."""


@dataclass
class Local:
    """A local variable, a parameter, a loop's variable, or a function of the module."""

    name: str
    line: int
    kind: str
    uses: int = 0
    assigned: int = 0
    values: list[tuple[Node, Scope]] = field(default_factory=list)
    over: Node = None  # what a loop's variable goes through: the list of `for _, each in ipairs(list)`


@dataclass
class Scope:
    """One block's locals; `parent` is the block around it."""

    parent: Scope | None = None
    locals: dict[str, Local] = field(default_factory=dict)

    def find(self, name: str) -> Local | None:
        """The local that *name* means here, None if it is none of this module."""
        scope: Scope | None = self
        while scope:
            if name in scope.locals:
                return scope.locals[name]
            scope = scope.parent
        return None


@dataclass(frozen=True)
class Use:
    """One use of KEYS or ARGV: by a number, by the name of a place, or as a whole or by a computed index (None)."""

    table: str
    line: int
    index: int | str | None


@dataclass(frozen=True)
class RedisCall:
    """One call of Redis, with the scope that its arguments are read in."""

    line: int
    command: str | None  # None when it is not a literal
    args: tuple[Node, ...]
    scope: Scope
    in_loop: bool
    sent: str = ""  # the name of the list that `send` hands over


@dataclass(frozen=True)
class Valued:
    """What is given to a name: the arguments to a function that is called, or the value to a field of a table."""

    name: str
    values: tuple[Node, ...]
    scope: Scope


@dataclass
class Function:
    """One function of the module, with all that stands in it.

    `name` is "take" of a local one, "Turns.schedule", or "verbs.read". `refers` are the names that it uses of its
    own module, of the base, and of other modules ("Turns.schedule"), with their lines; `returned` those of them that
    only stand in a `return`. `given` are the places that a table of keys in it names, with the number of KEYS there.
    """

    name: str
    line: int
    lines: int
    parameters: tuple[str, ...]
    refers: dict[str, int] = field(default_factory=dict)
    outside_return: list[str] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    calls: list[RedisCall] = field(default_factory=list)
    given: dict[str, int] = field(default_factory=dict)
    sites: list[Valued] = field(default_factory=list)  # calls of functions
    fields: list[Valued] = field(default_factory=list)  # fields of tables that are set
    body: list[Node] = field(default_factory=list)


class Walk:
    """Everything worth knowing about one module, in the order of its text."""

    def __init__(self, source: str) -> None:
        self.functions: list[Function] = []
        self.nested: list[tuple[int, int]] = []  # functions in functions: where each begins, and its lines
        self.constants: dict[str, tuple[int, Node]] = {}  # "NAME" or "Turns.NAME": where it stands, and its value
        self.strays: list[int] = []  # statements at the top that are neither a constant nor a function
        self.reads: list[tuple[int, str]] = []  # names that are not of this module, such as "add" or "Turns.schedule"
        self.global_writes: list[tuple[int, str]] = []
        self.locals: list[Local] = []
        self.shared_lines: list[int] = []  # lines on which a statement stands behind another one
        self.several: list[tuple[int, list[Node]]] = []  # values of a `local` with several names
        self.fields_read: list[tuple[int, str, str]] = []  # line, table, field
        self.filled: set[str] = set()  # tables that get fields by names which are not in the text
        self.fields_set: list[tuple[int, str]] = []
        self.kept: list[tuple[int, str]] = []  # what stands at the top of a module and a function changes
        self._line, self._loops, self._returns = 1, 0, 0
        self._scope, self._function = Scope(), Function("", 0, 0, ())
        self._top = self._scope
        body = parsed(source).body.body
        self._one_a_line(body)
        for statement in body:
            self._visit_top(statement)

    # the top of the module

    def _visit_top(self, node: Node) -> None:
        self._line = node.line or self._line
        if isinstance(node, lua.LocalFunction):
            self._declare(node.name, "function")
            self._top_function(node, node.name.id)
        elif isinstance(node, lua.Function) and (name := member(node.name)):
            self._top_function(node, name)
        elif isinstance(node, lua.LocalAssign):
            self._visit(node)
            for target, value in zip(node.targets, [*node.values, None], strict=False):
                self.constants[target.id] = node.line, value
        elif isinstance(node, lua.Assign) and (name := member(node.targets[0])):
            self.constants[name] = node.line, node.values[0]
            self._visit(node.values)
        else:
            self.strays.append(self._line)
            self._visit(node)

    def _top_function(self, node: Node, name: str) -> None:
        start, end = _lines_of(node)
        parameters = tuple(arg.id for arg in node.args if isinstance(arg, lua.Name))
        self._function, outer = Function(name, start, end - start + 1, parameters), self._function
        self._function.body = list(node.body.body)
        self.functions.append(self._function)
        self._body(node)
        self._function = outer

    # scopes

    def _visit(self, node: Node) -> None:
        if isinstance(node, list | tuple):
            for each in node:
                self._visit(each)
        elif isinstance(node, lua.Node):
            self._line = node.line or self._line
            handler = getattr(self, f"_visit_{type(node).__name__}", None)
            if handler:
                handler(node)
            else:
                self._visit(_children(node))

    @contextmanager
    def _inside(self, loop: bool = False) -> Iterator[None]:
        self._scope, outer = Scope(self._scope), self._scope
        self._loops += loop
        yield
        self._loops -= loop
        self._scope = outer

    def _declare(self, name: Node, kind: str) -> Local:
        local = Local(name.id, name.line or self._line, kind)
        self._scope.locals[local.name] = local
        self.locals.append(local)
        return local

    def _one_a_line(self, statements: list[Node]) -> None:
        last = 0
        for each in statements:
            start, end = (last, last) if isinstance(each, lua.SemiColon) else _lines_of(each)
            if start == last:
                self.shared_lines.append(start)
            last = end

    def _visit_Block(self, node: Node) -> None:
        self._one_a_line(node.body)
        with self._inside():
            self._visit(node.body)

    def _body(self, node: Node) -> None:
        with self._inside():
            for arg in node.args:
                if isinstance(arg, lua.Name):
                    self._declare(arg, "parameter")
            self._visit(node.body)

    def _visit_AnonymousFunction(self, node: Node) -> None:
        start, end = _lines_of(node)
        self.nested.append((start, end - start + 1))
        returns, self._returns = self._returns, 0
        self._body(node)
        self._returns = returns

    def _visit_LocalFunction(self, node: Node) -> None:
        self._declare(node.name, "local")
        self._visit_AnonymousFunction(node)

    def _visit_Fornum(self, node: Node) -> None:
        self._visit([node.start, node.stop, node.step])
        with self._inside(loop=True):
            self._declare(node.target, "loop")
            self._visit(node.body)

    def _visit_Forin(self, node: Node) -> None:
        self._visit(node.iter)
        with self._inside(loop=True):
            for target in node.targets:
                self._declare(target, "loop").over = _first_argument(node.iter)
            self._visit(node.body)

    def _visit_While(self, node: Node) -> None:
        with self._inside(loop=True):
            self._visit([node.test, node.body])

    def _visit_Repeat(self, node: Node) -> None:
        self._one_a_line(node.body.body)
        with self._inside(loop=True):
            self._visit([node.body.body, node.test])  # the test sees the body's locals

    def _visit_Return(self, node: Node) -> None:
        self._returns += 1
        self._visit(node.values)
        self._returns -= 1

    # assignments

    def _visit_LocalAssign(self, node: Node) -> None:
        if len(node.targets) > 1:
            self.several.append((node.line or self._line, list(node.values)))
        self._visit(node.values)
        for place, target in enumerate(node.targets):
            local = self._declare(target, "local")
            if place < len(node.values):
                local.values.append((node.values[place], self._scope))

    def _visit_Assign(self, node: Node) -> None:
        self._visit(node.values)
        for place, target in enumerate(node.targets):
            value = node.values[place] if place < len(node.values) else None
            self._assign(target, value)

    def _note_kept(self, target: Node) -> None:
        """Note a function's assignment to a variable of the module, or to a field of a table that is one."""
        at = target
        while isinstance(at, lua.Index) and not self._is_of_a_module(at):
            at = at.value
        name = member(at) or getattr(at, "id", "")
        own = self._top.locals.get(name)
        is_own = own is not None and self._scope.find(name) is own and own.kind != "function"
        if self._function.name not in ("", BEGIN) and (is_own or self._is_of_a_module(at)):
            self.kept.append((self._line, name))

    def _is_of_a_module(self, node: Node) -> bool:
        """Whether it is a field of a module's table, such as `Rules.known`: that is a name of no scope."""
        return bool(member(node)) and self._scope.find(node.value.id) is None

    def _assign(self, target: Node, value: Node) -> None:
        self._note_kept(target)
        if isinstance(target, lua.Name):
            local = self._scope.find(target.id)
            if local is None:
                self.global_writes.append((self._line, target.id))
                return
            local.assigned += 1
            if value is not None:
                local.values.append((value, self._scope))
        elif isinstance(target, lua.Index) and target.notation is lua.IndexNotation.DOT:
            self.fields_set.append((self._line, target.idx.id))
            self._function.fields.append(Valued(target.idx.id, (value,), self._scope))
            self._visit(target.value)
        else:
            self.filled.add(last_name(target.value))
            self._visit(target)

    # expressions

    def _visit_Name(self, node: Node) -> None:
        local = self._scope.find(node.id)
        if local is None:
            self._refer(node.id)
            return
        if local.kind == "function":
            self._refer(local.name, own=True)
        if local.name != self._function.name:  # a function that only calls itself is not used
            local.uses += 1
        if node.id in ARGUMENTS:
            self._function.uses.append(Use(node.id, self._line, None))

    def _refer(self, name: str, own: bool = False) -> None:
        if not own:
            self.reads.append((self._line, name))
        self._function.refers.setdefault(name, self._line)
        if not self._returns:
            self._function.outside_return.append(name)

    def _visit_Index(self, node: Node) -> None:
        if isinstance(node.value, lua.Name) and node.value.id in ARGUMENTS:
            index = _index(node)
            self._function.uses.append(Use(node.value.id, self._line, index))
            if local := self._scope.find(node.value.id):
                local.uses += 1
            if not isinstance(index, int):
                self._visit(node.idx)
        elif (name := member(node)) and self._scope.find(node.value.id) is None:
            self._refer(name)
        else:
            self._visit(node.value)
            if node.notation is lua.IndexNotation.SQUARE:
                self._visit(node.idx)
            else:
                self.fields_read.append((self._line, last_name(node.value), node.idx.id))

    def _visit_Table(self, node: Node) -> None:
        for each in node.fields:
            if each.between_brackets and isinstance(each.key, lua.Name) and (at := _index(each.value)):
                self._function.given[each.key.id] = at if isinstance(at, int) else 0
            elif each.between_brackets:
                self._visit(each.key)
            elif isinstance(each.key, lua.Name):
                self.fields_set.append((each.line or self._line, each.key.id))
                self._function.fields.append(Valued(each.key.id, (each.value,), self._scope))
            self._visit(each.value)

    def _visit_Call(self, node: Node) -> None:
        name = getattr(node.func, "id", None)
        if name in CALLS or name == "send":
            first = 0 if name in CALLS else 2  # send(q, list, command, place of the key)
            args = self._spread(list(node.args)[first:])
            command = text_of(args[0]) if args else None
            sent = (text_of(node.args[1]) or "").lower() if first else ""
            call = RedisCall(self._line, command, tuple(args), self._scope, bool(self._loops), sent)
            self._function.calls.append(call)
        if name == "keep":  # keep(values, …) changes the values
            self._note_kept(node.args[0])
        called = member(node.func) or name or ""
        if called:
            self._function.sites.append(Valued(called, tuple(node.args), self._scope))
        # What the gate looks at is not used by that.
        args = [each for each in node.args if not (called.startswith(GATE) and getattr(each, "id", "") in ARGUMENTS)]
        self._visit([node.func, args])

    def _spread(self, args: list[Node]) -> list[Node]:
        """The arguments; of `unpack(words)` those that the local `words` begins with, in its place."""
        found = []
        for arg in args:
            name = getattr(arg.args[0], "id", "") if _is_unpack(arg) else ""
            local = self._scope.find(name) if name else None
            table = local.values[0][0] if local and local.values else None
            found += [each.value for each in table.fields] if isinstance(table, lua.Table) else [arg]
        return found


def text_of(node: Node) -> str | None:
    """The value of a string literal in upper case, None for anything else."""
    return node.s.decode().upper() if isinstance(node, lua.String) else None


def member(node: Node) -> str:
    """The text "Turns.schedule" of such an index, empty for anything else."""
    if not isinstance(node, lua.Index) or node.notation is not lua.IndexNotation.DOT:
        return ""
    return f"{node.value.id}.{node.idx.id}" if isinstance(node.value, lua.Name) else ""


def last_name(node: Node) -> str:
    """The last name of an expression: `lists` of `q.lists`."""
    return str(getattr(node.idx if isinstance(node, lua.Index) else node, "id", ""))


def _first_argument(node: Node) -> Node:
    """The list of `ipairs(list)`, None for anything else."""
    first = next(iter(node), None) if isinstance(node, list) else node
    return first.args[0] if isinstance(first, lua.Call) and getattr(first.func, "id", "") == "ipairs" else None


def _is_unpack(node: Node) -> bool:
    return isinstance(node, lua.Call) and getattr(node.func, "id", None) == "unpack"


def _index(node: Node) -> int | str | None:
    """The n of `KEYS[n]`, or the name of a place there, None for any other index or node."""
    if not isinstance(node, lua.Index) or getattr(node.value, "id", None) not in ARGUMENTS:
        return None
    if isinstance(node.idx, lua.Number):
        return int(node.idx.n)
    return str(node.idx.id) if isinstance(node.idx, lua.Name) and node.idx.id.isupper() else None


def _lines_of(node: Node) -> tuple[int, int]:
    """The first and the last line of a node."""
    return node.first_token.line, node.last_token.line


def _children(node: Node) -> list[Node]:
    return [value for name, value in vars(node).items() if not name.startswith("_") and name != "comments"]
