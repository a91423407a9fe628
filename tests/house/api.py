"""The public names of shardq, read from its code without an import of it: what programs may use, and what it says."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

import griffe

from shardq.client.base import _INSIDE
from tests.house.doc_blocks import ROOT

MODULES: Final = (
    "shardq", "shardq.tasks", "shardq.backoff", "shardq.codec", "shardq.routing", "shardq.embedded", "shardq.testing",
    "shardq.telemetry", "shardq.exporter", "shardq.dashboard", "shardq.django", "shardq.edge", "shardq.planner",
    "shardq.spark",
)  # fmt: skip
"""The modules that programs import, as the pages show them."""
Public = griffe.Class | griffe.Function
Member = griffe.Function | griffe.Attribute


@cache
def package() -> griffe.Module:
    """Return shardq as griffe reads it."""
    loaded = griffe.load("shardq", search_paths=[ROOT], resolve_aliases=True, allow_inspection=False)
    assert isinstance(loaded, griffe.Module)
    return loaded


def names(module: str) -> Iterator[Public]:
    """The public classes and functions of a module: those that it exports, or the classes of one that exports none."""
    found = target_of(package()[module.partition(".")[2]]) if "." in module else package()
    exported = {*map(str, found.exports or ())}
    for name, each in found.members.items():
        target = target_of(each) if name in exported or not (exported or each.is_alias) else None
        if isinstance(target, griffe.Module) and name in exported:
            target = target_of(target[name])  # a function that has the name of its module
        if isinstance(target, Public) and (exported or (target.is_class and target.is_public)):
            yield target


def members(kind: griffe.Class) -> Iterator[Member]:
    """The public methods, properties and fields of a class, also those of its bases in shardq."""
    for name, each in kind.all_members.items():
        target = target_of(each)
        if not name.startswith("_") and name not in _INSIDE and isinstance(target, Member):
            yield target


def init_of(kind: griffe.Class) -> griffe.Function | None:
    """Return how a class is made, None if it says nothing of that itself."""
    found = target_of(kind.all_members["__init__"]) if "__init__" in kind.all_members else None
    return found if isinstance(found, griffe.Function) else None


def target_of(each: griffe.Object | griffe.Alias) -> griffe.Object:
    """Return the object itself of one that may be imported."""
    return each.final_target if isinstance(each, griffe.Alias) else each


def is_error(kind: Public) -> bool:
    """Return whether it is an error."""
    return kind.path.startswith("shardq.errors.")


def text(each: Public | Member) -> str:
    """Return the docstring, '' for none."""
    return each.docstring.value if each.docstring else ""
