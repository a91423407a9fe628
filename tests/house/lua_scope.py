"""What one Lua script does: the names it touches, its KEYS and ARGV, and its calls to Redis.

A walk over luaparser's syntax tree with Lua's scoping. It only collects; `lua_lint` judges.
"""

# ruff: noqa: N802 - a visitor is named after luaparser's class
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from luaparser import ast
from luaparser import astnodes as lua

Node: TypeAlias = Any  # luaparser carries no types
CONTEXT = "q"
"""The table that a verb hands to the functions of modules."""


@dataclass
class Local:
    """A local variable, parameter or loop variable."""

    name: str
    line: int
    parameter: bool = False
    uses: int = 0
    top: bool = False  # of the whole file, not of a block or function in it
    assigned: int = 0  # how often after its declaration
    values: list[tuple[Node, Scope]] = field(default_factory=list)


@dataclass
class Scope:
    """One block's locals; `parent` is the block around it."""

    parent: Scope | None = None
    locals: dict[str, Local] = field(default_factory=dict)

    def find(self, name: str) -> Local | None:
        """The local that *name* means here, None for a global."""
        scope: Scope | None = self
        while scope:
            if name in scope.locals:
                return scope.locals[name]
            scope = scope.parent
        return None


@dataclass(frozen=True)
class Use:
    """One use of KEYS or ARGV: `index` is None for a computed one, `bound` names the local of a binding at the top."""

    table: str
    line: int
    index: int | None
    bound: str | None = None


@dataclass(frozen=True)
class RedisCall:
    """One `redis.call` or `redis.pcall`, with the scope that its arguments are read in."""

    line: int
    args: list[Node]
    scope: Scope
    in_loop: bool

    @property
    def command(self) -> str | None:
        """The command's name, None when it is not a literal."""
        return text_of(self.args[0]) if self.args else None


def text_of(node: Node) -> str | None:
    """The value of a string literal in upper case, None for anything else."""
    return node.s.decode().upper() if isinstance(node, lua.String) else None


class Walk:
    """Everything worth knowing about one script, in the order of its text."""

    def __init__(self, source: str) -> None:
        self.global_reads: list[tuple[int, str]] = []
        self.global_writes: list[tuple[int, str]] = []
        self.locals: list[Local] = []
        self.uses: list[Use] = []
        self.calls: list[RedisCall] = []
        self.aliases: list[int] = []  # lines where redis.call is passed on instead of called
        self.unpacks: list[tuple[int, str]] = []
        self.functions: list[tuple[int, int]] = []  # the line where each begins, and how many it has
        self.context_reads: list[tuple[int, str]] = []  # fields of the context table `q`
        self.context_sets: list[tuple[int, str]] = []
        self._line, self._loops, self._scope = 1, 0, Scope()
        self._head = True  # still among the bindings at the top of the file
        self._context_head = True  # still among the bindings at the top of the file, or of its general part
        general = _line_of_general(source)
        for statement in ast.parse(source).body.body:
            if general and statement.line > general:
                self._context_head, general = True, 0
            if not isinstance(statement, lua.LocalAssign | lua.LocalFunction | lua.SemiColon):
                self._head = self._context_head = False
            self._visit(statement, top=True)

    @property
    def unused(self) -> list[Local]:
        """Locals that nothing reads; `_` and parameters may be so."""
        return [each for each in self.locals if not (each.uses or each.parameter or each.name.startswith("_"))]

    def _visit(self, node: Node, top: bool = False) -> None:
        if isinstance(node, list | tuple):
            for each in node:
                self._visit(each)
        elif isinstance(node, lua.Node):
            self._line = node.line or self._line
            handler = getattr(self, f"_visit_{type(node).__name__}", None)
            if isinstance(node, lua.LocalAssign):
                self._visit_local(node, top and self._head, top and self._context_head)
            elif handler:
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

    def _declare(self, name: Node, parameter: bool = False) -> Local:
        local = Local(name.id, name.line or self._line, parameter, top=self._scope.parent is None)
        self._scope.locals[local.name] = local
        self.locals.append(local)
        return local

    # statements that declare or open a block

    def _visit_Block(self, node: Node) -> None:
        with self._inside():
            self._visit(node.body)

    def _visit_local(self, node: Node, head: bool, context_head: bool) -> None:
        values = list(node.values)
        for place, (target, value) in enumerate(zip(node.targets, values, strict=False)):
            if head and (index := _constant_index(value, "KEYS")):
                self.uses.append(Use("KEYS", self._line, index, target.id))
                values[place] = None
            elif target.id == CONTEXT and isinstance(value, lua.Table):
                values[place] = self._context(value, context_head)
        self._visit(values)
        for place, target in enumerate(node.targets):
            local = self._declare(target)
            if place < len(node.values):
                local.values.append((node.values[place], self._scope))

    def _context(self, table: Node, head: bool) -> list[Node]:
        """Note the fields that the context table begins with; their values, without the KEYS that it binds.

        A verb with a straight part makes the table behind it, before the first statement of the general part. There
        is one such table.
        """
        self._context_head = False
        values = []
        for each in table.fields:
            name = getattr(each.key, "id", "")
            self.context_sets.append((each.line or self._line, name))
            if head and (index := _constant_index(each.value, "KEYS")):
                self.uses.append(Use("KEYS", each.line or self._line, index, name))
            else:
                values.append(each.value)
        return values

    def _visit_LocalFunction(self, node: Node) -> None:
        self._declare(node.name)
        self._function(node)

    def _function(self, node: Node, *implicit: str) -> None:
        if node.first_token and node.last_token:
            start, end = (
                int(str(each).rsplit(",", 1)[1].split(":")[0]) for each in (node.first_token, node.last_token)
            )
            self.functions.append((start, end - start + 1))
        with self._inside():
            for name in implicit:
                self._declare(lua.Name(name), parameter=True)
            for arg in node.args:
                if isinstance(arg, lua.Name):
                    self._declare(arg, parameter=True)
            self._visit(node.body)

    def _visit_AnonymousFunction(self, node: Node) -> None:
        self._function(node)

    def _visit_Function(self, node: Node) -> None:
        self._assign(node.name)
        self._function(node)

    def _visit_Method(self, node: Node) -> None:
        self._visit(node.source)
        self._function(node, "self")

    def _visit_Fornum(self, node: Node) -> None:
        self._visit([node.start, node.stop, node.step])
        with self._inside(loop=True):
            self._declare(node.target)
            self._visit(node.body)

    def _visit_Forin(self, node: Node) -> None:
        self._visit(node.iter)
        with self._inside(loop=True):
            for target in node.targets:
                self._declare(target)
            self._visit(node.body)

    def _visit_While(self, node: Node) -> None:
        with self._inside(loop=True):
            self._visit([node.test, node.body])

    def _visit_Repeat(self, node: Node) -> None:
        with self._inside(loop=True):
            self._visit([node.body.body, node.test])  # the test sees the body's locals

    def _visit_Assign(self, node: Node) -> None:
        self._visit(node.values)
        for place, target in enumerate(node.targets):
            local = self._assign(target)
            if local and place < len(node.values):
                local.values.append((node.values[place], self._scope))

    def _assign(self, target: Node) -> Local | None:
        if field_name := context_field(target):
            self.context_sets.append((self._line, field_name))
            return None
        if not isinstance(target, lua.Name):
            self._visit(target)
            return None
        local = self._scope.find(target.id)
        if local:
            local.assigned += 1
        if local is None:
            self.global_writes.append((self._line, target.id))
        return local

    # expressions

    def _visit_Name(self, node: Node) -> None:
        local = self._scope.find(node.id)
        if local:
            local.uses += 1
        elif node.id in {"KEYS", "ARGV"}:
            self.uses.append(Use(node.id, self._line, None))
        else:
            self.global_reads.append((self._line, node.id))

    def _visit_Index(self, node: Node) -> None:
        for table in ("KEYS", "ARGV"):
            if self._scope.find(table) is None and (index := _constant_index(node, table)):
                self.uses.append(Use(table, self._line, index))
                return
        if field_name := context_field(node):
            self.context_reads.append((self._line, field_name))
        if is_redis_call(node):
            self.aliases.append(self._line)
        self._visit(node.value)
        if node.notation is lua.IndexNotation.SQUARE:
            self._visit(node.idx)

    def _visit_Field(self, node: Node) -> None:
        if node.between_brackets:
            self._visit(node.key)
        self._visit(node.value)

    def _visit_Invoke(self, node: Node) -> None:
        self._visit([node.source, node.args])

    def _visit_Call(self, node: Node) -> None:
        if is_redis_call(node.func):
            self.calls.append(RedisCall(self._line, self._spread(node.args), self._scope, bool(self._loops)))
            self._visit(node.args)
            return
        if (name := _unpacked(node)) in {"KEYS", "ARGV"} and len(node.args) < 3:  # a slice has the size of a chunk
            self.unpacks.append((self._line, name))
        self._visit([node.func, node.args])

    def _spread(self, args: list[Node]) -> list[Node]:
        """The arguments; of `unpack(words)` those that the local `words` begins with."""
        name = _unpacked(args[0]) if args else ""
        local = self._scope.find(name) if name else None
        if local and local.values and isinstance(local.values[0][0], lua.Table):
            return [each.value for each in local.values[0][0].fields]
        return list(args)


def _line_of_general(source: str) -> int:
    """The line of `--- @general`, behind which the general part begins; 0 in a script without a straight part."""
    lines = source.splitlines()
    return lines.index("--- @general") + 1 if "--- @general" in lines else 0


def is_redis_call(node: Node) -> bool:
    """Is *node* the expression `redis.call` or `redis.pcall`?"""
    if not (isinstance(node, lua.Index) and isinstance(node.value, lua.Name) and node.value.id == "redis"):
        return False
    return getattr(node.idx, "id", None) in {"call", "pcall"} or text_of(node.idx) in {"CALL", "PCALL"}


def _line_of(token: object) -> int:
    """The line of a token, which shows itself as `[@0,0:4='local',<18>,1:0]`."""
    return int(str(token).rsplit(",", 1)[1].partition(":")[0])


def context_field(node: Node) -> str:
    """The x of `q.x`, empty for anything else."""
    matches = isinstance(node, lua.Index) and isinstance(node.value, lua.Name) and node.value.id == CONTEXT
    return node.idx.id if matches and isinstance(node.idx, lua.Name) else ""


def _unpacked(node: Node) -> str:
    """The name in `unpack(name)`, empty for anything else."""
    matches = isinstance(node, lua.Call) and getattr(node.func, "id", None) == "unpack" and node.args
    return node.args[0].id if matches and isinstance(node.args[0], lua.Name) else ""


def _constant_index(node: Node, table: str) -> int | None:
    """The n of `table[n]`, None for anything else."""
    matches = isinstance(node, lua.Index) and isinstance(node.value, lua.Name) and node.value.id == table
    return node.idx.n if matches and isinstance(node.idx, lua.Number) else None


def _children(node: Node) -> list[Node]:
    return [value for name, value in vars(node).items() if not name.startswith("_") and name != "comments"]
