"""What shardq defines, as its files say: nothing is imported, so it is the same with and without the extras."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from shardq.telemetry.instruments import INSTRUMENTS
from tests.house.doc_blocks import ROOT

PACKAGE, LUA = ROOT / "shardq", ROOT / "lua"
INNER_ROOMS = {"cli", "drivers", "ops", "protocol"}
"""What users do not import."""

ANYTHING = "**"
"""Stands among the parameters of a function that takes any."""

Names = defaultdict[str, set[str]]
Function = ast.FunctionDef | ast.AsyncFunctionDef
FILLED_IN = re.compile(r"%[-\d.]*[srdfg]")
NAME_LIKE = re.compile(r"[\w.:/-]+")


def _names() -> Names:
    return defaultdict(set)


@dataclass
class Definitions:
    """The names that files define.

    Those of `public` are where users get them, those of `inner` anywhere. `constants` are texts of the code that look
    like a name, `texts` are all, on one line, with `…` where something is filled in. `members` has the members of each
    class, `parameters` and `returns` are by function, with its class as in "Queue.write", and `exports` says what can
    be imported from each module. `wire` has the names of the edge's wire.
    """

    public: set[str] = field(default_factory=set)
    inner: set[str] = field(default_factory=set)
    constants: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    wire: set[str] = field(default_factory=set)
    members: Names = field(default_factory=_names)
    parameters: Names = field(default_factory=_names)
    returns: Names = field(default_factory=_names)
    exports: Names = field(default_factory=_names)
    bases: Names = field(default_factory=_names)
    _overloaded: set[str] = field(default_factory=set)

    def lineage(self, name: str) -> list[str]:
        """The class called *name*, and its bases."""
        found = [name]
        for each in found:
            found += sorted(self.bases.get(each, set()) - {*found})
        return found

    def members_of(self, name: str) -> set[str]:
        """The members of the class called *name*, with those of its bases."""
        return {member for each in self.lineage(name) for member in self.members.get(each, ())}

    def method(self, owner: str, name: str) -> str:
        """The full name of the method *name* of the class *owner*; nothing if it has none."""
        return next((full for each in self.lineage(owner) if (full := f"{each}.{name}") in self.parameters), "")

    def parameters_of(self, full: str) -> set[str]:
        """The parameters of a function. Those of a class are those of its `__init__`, or else its fields."""
        if full in self.members:
            made = self.method(full, "__init__")
            return self.parameters_of(made) if made else self.members_of(full)
        own = self.parameters[full]
        return own | {each for name in own if name.startswith("**") for each in self.members_of(name[2:])}

    def returned(self, full: str) -> set[str]:
        """The classes that the annotation of a function's result names."""
        return {name for name in self.returns.get(full, ()) if name[0].isupper() and name in self.members}

    def add(self, path: Path) -> None:
        """Take in the file at *path*."""
        place = path.relative_to(PACKAGE.parent)
        module = ".".join(place.with_suffix("").parts).removesuffix(".__init__")
        tree = ast.parse(path.read_text())
        found = {*bound(tree.body)}
        self.exports[module] |= found
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                self._add_class(node)
                found |= self.members[node.name]
            elif isinstance(node, Function) and (node.name == "__init__" or not node.name.startswith("_")):
                found |= {node.name, *(each.arg for each in _arguments(node))}
        for node in tree.body:
            if isinstance(node, Function):
                self._add_function(node.name, node)
        found.add(module.rpartition(".")[2])
        self.inner |= found
        if place.parts[1] not in INNER_ROOMS:
            self.public |= {name for name in found if not name.startswith("_")}
        self._add_texts(tree)

    def close(self) -> None:
        """Make public what public functions return."""
        for full, names in self.returns.items():
            if full.rpartition(".")[2] in self.public:
                for name in names:
                    self.public |= self.members_of(name)

    def _add_class(self, node: ast.ClassDef) -> None:
        self.bases[node.name] |= {name for each in node.bases if (name := _last_name(each)) != node.name}
        members = self.members[node.name]
        members |= {*bound(node.body)}
        for each in node.body:
            if isinstance(each, Function):
                self._add_function(f"{node.name}.{each.name}", each)
                members |= {*_attributes(each)}

    def _add_function(self, full: str, node: Function) -> None:
        self.parameters[full] |= {each.arg for each in _arguments(node)}
        self.returns[full] |= {*_annotated(node.returns)}
        if any(ast.unparse(each) == "overload" for each in node.decorator_list):
            self._overloaded.add(full)
        more = {*_annotated(node.args.kwarg and node.args.kwarg.annotation)}
        self.parameters[full] |= {f"**{name}" for name in more - {"Any", "Unpack"}}
        if "Any" in more and full not in self._overloaded:
            self.parameters[full].add(ANYTHING)

    def _add_texts(self, tree: ast.AST) -> None:
        described = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            match node:
                case ast.Constant(value=str(value)) if id(node) not in described:
                    self.texts.add(" ".join(FILLED_IN.sub("…", value).split()))
                    if NAME_LIKE.fullmatch(value):
                        self.constants.add(value)
                case ast.JoinedStr(values=values):
                    parts = [str(each.value) if isinstance(each, ast.Constant) else "…" for each in values]
                    self.texts.add(" ".join("".join(parts).split()))


def bound(body: Iterable[ast.stmt]) -> Iterator[str]:
    """The names that these statements bind, those in their `if` and `try` too."""
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from ((each.asname or each.name).partition(".")[0] for each in names)
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield name
                if name in ("__all__", "__slots__"):
                    yield from re.findall(r"\w+", ast.unparse(node.value))
            case ast.Assign(targets=targets):
                yield from (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.If() | ast.Try():
                yield from bound([*node.body, *node.orelse])


def _arguments(node: Function) -> Iterator[ast.arg]:
    yield from (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)


def _annotated(node: ast.AST | None) -> Iterator[str]:
    """The names in an annotation, also in one that is a text."""
    yield from re.findall(r"\w+", ast.unparse(node)) if node else ()


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Subscript(value=value):
            return _last_name(value)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def _attributes(node: Function) -> Iterator[str]:
    """What a method sets in `self`."""
    for each in ast.walk(node):
        match each:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


@cache
def definitions() -> Definitions:
    """Those of shardq."""
    found = Definitions()
    for path in sorted(PACKAGE.rglob("*.py")):
        found.add(path)
    found.close()
    wire = re.sub(r"//.*", "", (PACKAGE / "datasink/shardq_edge.proto").read_text())
    found.wire |= {*re.findall(r"\w+", wire), "shardq.edge.v1.DataSink", "shardq.edge.v1.DataSink/Send"}
    found.constants |= found.wire
    found.constants |= {
        each.text for each in INSTRUMENTS
    }  # most are put together, so that no text of the code has them
    return found


@cache
def workshop() -> frozenset[str]:
    """The names in the Makefile, and the marks of tests."""
    tests = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    marks = (re.match(r"\w+", each) for each in tests["markers"])
    return frozenset({*re.findall(r"[\w.]+", (ROOT / "Makefile").read_text()), *(each[0] for each in marks if each)})


@cache
def lua_code() -> str:
    """The code of lua/, without its comments."""
    return re.sub(r"--.*", "", "\n".join(path.read_text() for path in sorted(LUA.glob("*.lua"))))


@cache
def lua_functions() -> frozenset[str]:
    """The functions of lua/, as `Streams.append` or `spell`, and the verbs as `verbs.read`."""
    return frozenset(re.findall(r"^(?:local )?function ([\w.]+)\(", lua_code(), re.MULTILINE))


@cache
def lua_names() -> frozenset[str]:
    """All names in lua/, also those of modules."""
    return lua_functions() | {*re.findall(r"\w+", lua_code()), *(path.stem for path in LUA.glob("*.lua"))}
