"""What a piece of Python in a page names: classes, functions, members with their owner, parameters, imports."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import sys
from collections.abc import Iterator
from importlib import import_module

from tests.house.doc_blocks import ROOT
from tests.house.names.definitions import (
    ANYTHING,
    bound,
    definitions,
    lua_code,
    lua_functions,
    lua_names,
    workshop,
)
from tests.house.names.pages import Page

VARIABLES = {
    "client": "Client", "delivery": "Delivery", "edge": "Edge", "job": "Job", "jobs": "Queue", "queue": "Queue",
    "router": "Router", "tasks": "Tasks", "worker": "Worker", "writer": "Writer", "written": "Written",
}  # fmt: skip
"""What the pages call an instance of which class."""
CHECKOUT = {"benchmarks", "examples", "tests"}
"""What a checkout has besides the package."""


def parsed(text: str) -> ast.AST | None:
    """The syntax tree of *text*: an expression, a statement or its head, or arguments; None if it is no Python."""
    text = re.sub(r"^@", "", text.replace("…", "..."))
    for form in (text, f"dict({text})", f"{text}: pass"):
        try:
            (function,) = ast.parse(f"async def _():\n {form}").body
        except SyntaxError:
            continue
        return ast.Module(function.body, []) if isinstance(function, ast.AsyncFunctionDef) else None
    return None


class Code:
    """Looks names of Python up, as a reader of *page* would: what users do not import, only inner pages name."""

    def __init__(self, page: Page) -> None:
        self._page, self._known = page, definitions()

    def is_word(self, name: str) -> bool:
        """Whether something is called *name*: a function, a parameter, a field, a setting, a value."""
        if name in self._known.constants or name in self._page.own or keyword.iskeyword(name) or name in vars(builtins):
            return True
        if self._page.is_inner:
            return name in self._known.inner or name in lua_names() or name in workshop()
        return name in self._known.public or _snake(name) in self._known.public  # Spark's way to spell options

    def is_class(self, name: str) -> bool:
        """Whether a class called *name* can be imported from a module that the page names."""
        if name in self._known.wire or name in self._page.own or name in vars(builtins):
            return True
        if self._page.is_inner:
            return name in self._known.inner or name in lua_names()
        return any(name in self._known.exports.get(module, ()) for module in self._page.modules)

    def unknown(self, tree: ast.AST) -> Iterator[tuple[str, str]]:
        """What *tree* names that is not there: the name, and what is wrong."""
        match tree:
            case ast.Attribute() if (full := dotted(tree)) and self._is_whole(full):
                return
            case ast.Attribute(value=value, attr=name):
                yield from self._unknown_member(value, name)
                yield from self.unknown(value)
            case ast.Call(func=function, args=arguments, keywords=keywords):
                yield from self._unknown_function(function)
                for each in keywords:
                    yield from self._unknown_parameter(function, each.arg or "")
                for child in (*arguments, *(each.value for each in keywords)):
                    if not isinstance(child, ast.Name | ast.Dict):  # these stand for anything
                        yield from self.unknown(child)
            case ast.Name(id=name):
                yield from self._unknown_name(name)
            case _:
                for part in ast.iter_child_nodes(tree):
                    yield from self.unknown(part)

    def unknown_imports(self, tree: ast.AST) -> Iterator[tuple[str, str]]:
        """What is imported from shardq and is not there."""
        for node in ast.walk(tree):
            match node:
                case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] == "shardq":
                    for each in names:
                        if not self.is_there(f"{module}.{each.name}"):
                            yield each.name, f"{module} has no {each.name}"

    def _is_whole(self, full: str) -> bool:
        """Whether a dotted name is one as a whole."""
        first = full.partition(".")[0]
        if full in self._known.constants or (self._page.is_inner and full in lua_functions()):
            return True
        if first in CHECKOUT:
            module, _, name = full.rpartition(".")
            path = ROOT / f"{module.replace('.', '/')}.py"
            return path.is_file() and name in {*bound(ast.parse(path.read_text()).body)}
        return first == "shardq" and self.is_there(full)

    def is_there(self, full: str) -> bool:
        """Whether a module of shardq, what is in it, or a member of that has this dotted name."""
        if full in self._known.exports:
            return True
        module, _, name = full.rpartition(".")
        if name in self._known.exports.get(module, ()):
            return True
        return name in self._known.members_of(module.rpartition(".")[2])

    def _unknown_name(self, name: str) -> Iterator[tuple[str, str]]:
        if name in sys.stdlib_module_names or name in VARIABLES:
            return
        if name[0].isupper() and not name.isupper():
            if not self.is_class(name):
                yield name, f"{name} cannot be imported from what the page names"
        elif not self.is_word(name):
            yield name, f"nothing is called {name}"

    def _unknown_member(self, owner: ast.expr, name: str) -> Iterator[tuple[str, str]]:
        table, classes = dotted(owner), self._classes(owner)
        if table in sys.stdlib_module_names and table not in VARIABLES:
            if not hasattr(import_module(table), name):
                yield f"{table}.{name}", f"Python's {table} has no {name}"
        elif classes:
            if not any(name in self._known.members_of(each) for each in classes):
                yield f"{table}.{name}", f"{' and '.join(classes)} has no {name}"
        elif self._page.is_inner and table and f"{table}." in lua_code():
            if not re.search(rf"\b{re.escape(table)}\.{name}\b", lua_code()):
                yield f"{table}.{name}", f"{table} of lua/ has no {name}"
        elif not self.is_word(name):
            yield name, f"nothing is called {name}"

    def _unknown_function(self, function: ast.expr) -> Iterator[tuple[str, str]]:
        """In inner pages `name()` is a function, and not just any word."""
        match function:
            case ast.Name(id=name) if self._page.is_inner and name.islower():
                known = lua_functions() | workshop() | self._page.own
                if name not in known and not self._functions(function):
                    yield name, f"no function is called {name}"
            case _:
                yield from self.unknown(function)

    def _unknown_parameter(self, function: ast.expr, name: str) -> Iterator[tuple[str, str]]:
        functions = self._functions(function)
        taken = {each for full in functions for each in self._known.parameters_of(full)}
        if not functions or ANYTHING in taken:
            if not self.is_word(name):
                yield name, f"nothing is called {name}"
        elif name not in taken:
            yield f"{name}=", f"{' and '.join(functions)} does not take {name}"

    def _classes(self, node: ast.expr) -> list[str]:
        """The classes of which *node* is an instance, or which it is; none if that is not plain."""
        match node:
            case ast.Name(id=name) if name in VARIABLES:
                return [VARIABLES[name]]
            case ast.Await(value=value):
                return self._classes(value)
            case ast.Call(func=function) if classes := self._classes(function):
                return classes
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in self._known.members and name[0].isupper():
                return [name]
            case ast.Call(func=ast.Attribute() as member) | (ast.Attribute() as member):
                return sorted({each for full in self._functions(member) for each in self._known.returned(full)})
        return []

    def _functions(self, node: ast.expr) -> list[str]:
        """The full names of what a call of *node* may call."""
        match node:
            case ast.Name(id=name) if name in self._known.members:
                return [name]
            case ast.Name(id=name):
                return sorted(full for full in self._known.parameters if full.rpartition(".")[2] == name)
            case ast.Attribute(value=value, attr=name):
                if name in self._known.members:
                    return [name]
                return [full for each in self._classes(value) if (full := self._known.method(each, name))]
        return []


def dotted(node: ast.expr) -> str:
    """The text of *node* if it is names with dots between them."""
    text = ast.unparse(node)
    return text if re.fullmatch(r"[\w.]+", text) else ""


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
