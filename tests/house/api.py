"""The public names of shardq, read from its code without an import of it: what programs may use, and what it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

import griffe

from shardq.client.base import _INSIDE
from tests.house.doc_blocks import ROOT

MODULES: Final = (
    "shardq", "shardq.tasks", "shardq.backoff", "shardq.codec", "shardq.routing", "shardq.embedded", "shardq.testing",
    "shardq.telemetry", "shardq.exporter", "shardq.dashboard", "shardq.django", "shardq.edge", "shardq.assignment",
    "shardq.spark",
)  # fmt: skip
"""The modules that programs import, as the pages show them."""
RETURNED: Final = {
    "shardq": (
        "client.job.Job",
        "client.async_job.AsyncJob",
        "client.schedules.Schedules",
        "client.async_schedules.AsyncSchedules",
    )
}
"""Classes of what calls of a module return and programs use, but do not import, with their places in shardq."""
INSIDE: Final = re.compile(r"\bFor the parts of shardq\b")
"""What the docstring says of a method or field that programs do not use."""
AS: Final = re.compile(r"\bfields are those of `(\w+)`")
"""How the docstring of a class says that those of another class speak for its own fields, too."""
Public = griffe.Class | griffe.Function
Member = griffe.Function | griffe.Attribute


@cache
def package() -> griffe.Module:
    """Return shardq as griffe reads it."""
    loaded = griffe.load("shardq", search_paths=[ROOT], resolve_aliases=True, allow_inspection=False)
    assert isinstance(loaded, griffe.Module)
    return loaded


def names(module: str) -> Iterator[Public]:
    """The public classes and functions of a module: those that it exports, or the classes of one that exports none.

    Those of what its calls return are among them.
    """
    found = target_of(package()[module.partition(".")[2]]) if "." in module else package()
    exported = {*map(str, found.exports or ())}
    for name, each in found.members.items():
        target = target_of(each) if name in exported or not (exported or each.is_alias) else None
        if isinstance(target, griffe.Module) and name in exported:
            target = target_of(target[name])  # a function that has the name of its module
        if isinstance(target, Public) and (exported or (target.is_class and target.is_public)):
            yield target
    for path in RETURNED.get(module, ()):
        target = package()[path]
        assert isinstance(target, griffe.Class)
        yield target


def members(kind: griffe.Class) -> Iterator[Member]:
    """The public methods, properties and fields of a class, also those of its bases in shardq.

    Those that say that they are for the parts of shardq are no part of the reference.
    """
    for name, each in kind.all_members.items():
        target = target_of(each)
        if name.startswith("_") or name in _INSIDE or not isinstance(target, Member):
            continue
        if not any(INSIDE.search(said) for said in (about(target, kind), *_owners(target, kind))):
            yield target


def init_of(kind: griffe.Class) -> griffe.Function | None:
    """Return how a class is made, None if it says nothing of that itself."""
    found = target_of(kind.all_members["__init__"]) if "__init__" in kind.all_members else None
    return found if isinstance(found, griffe.Function) else None


def about(each: griffe.Object, kind: griffe.Class) -> str:
    """Return what is said of a member of a class, '' for nothing: by itself, by a base, or by the class for fields."""
    own = next((text(one) for one in _same(each, kind) if text(one)), "")
    if own or not isinstance(each, griffe.Attribute):
        return own
    kinds = [kind, *map(target_of, kind.mro())]
    if other := AS.search(text(kind)):
        kinds.append(target_of(kind.package[other[1]]))
    return next((said for said in map(text, kinds) if re.search(rf"[`*]{each.name}[`*]", said)), "")


def type_of(each: griffe.Attribute, kind: griffe.Class) -> str:
    """Return the type of a field, '' if the code says none.

    It is annotated where it is or in a base, or it is an argument of the class, or the name of a value of an enum.
    """
    for one in _same(each, kind):
        if isinstance(one, griffe.Attribute) and one.annotation is not None:
            return str(one.annotation)
    if any(str(base) in ("Enum", "StrEnum", "IntEnum") for base in kind.bases):
        return kind.name
    arguments = init_of(kind)
    found = arguments and arguments.parameters[each.name] if arguments and each.name in arguments.parameters else None
    return str(found.annotation) if found and str(each.value) == each.name and found.annotation else ""


def _owners(each: Member, kind: griffe.Class) -> Iterator[str]:
    """What the bases that have a member, too, say of themselves."""
    yield from (text(target_of(base)) for base in kind.mro() if each.name in base.members)


def _same(each: griffe.Object, kind: griffe.Class) -> Iterator[griffe.Object]:
    """A member of a class, and what the bases have of this name."""
    yield each
    for base in kind.mro():
        if each.name in base.members:
            yield target_of(base.members[each.name])


def target_of(each: griffe.Object | griffe.Alias) -> griffe.Object:
    """Return the object itself of one that may be imported."""
    return each.final_target if isinstance(each, griffe.Alias) else each


def is_error(kind: Public) -> bool:
    """Return whether it is an error."""
    return kind.path.startswith("shardq.errors.")


def text(each: griffe.Object) -> str:
    """Return the docstring, '' for none."""
    return each.docstring.value if each.docstring else ""
