"""What readers of the API reference miss: `python -m tests.house.completeness` counts it, and names each.

It looks at the public names of `api`: classes, functions, and the methods and fields of classes. What they miss is

- a docstring. A field may be named in backticks by the docstring of its class instead, which says what it is, with its
  unit. Where the docstring of a class says that its "fields are those of `Other`", those of the other one count. A base
  class may speak for what it hands down.
- types: of each argument and of the result, and of each field.
- errors: the docstring of each function and method names an error that it raises, or says that it raises none. The
  docstring of an error itself says when it is raised.
- an example, which begins with ">>>" and which a test runs (`docstrings`). Each function has one of its own. A method
  has one, or that of its class calls this very method. A class has one that shows how it is made or used. Two kinds of
  classes need none: errors, and values without methods whose docstring names the call whose example shows one, as
  "`Queue.stats`" does. Fields and properties need none.

The clients for threads and for asyncio count both: a reader looks at one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

import griffe

from tests.house import api
from tests.house.api import Member, Public
from tests.house.docstrings import code, has_example
from tests.surface import error_classes

ERROR: Final = re.compile(rf"\b(?:\w+Error|[Rr]aises?|{'|'.join(error_classes())})\b")
"""How a docstring speaks of errors: by the name of one, or by the verb."""
CALL: Final = re.compile(r"`(\w+\.\w+|\w+)`")
"""How a docstring names a call of shardq."""
MISSED: Final = ("docstring", "types", "errors", "example")


def misses() -> Iterator[tuple[str, str]]:
    """What is missed, each with the name that lacks it, as "shardq.Queue.write"."""
    for module in api.MODULES:
        for each in api.names(module):
            name = f"{module}.{each.name}"
            yield from ((what, name) for what in _misses_of(each, module))
            if isinstance(each, griffe.Class):
                for member in api.members(each):
                    yield from ((what, f"{name}.{member.name}") for what in _misses_of_member(member, each))


def _misses_of(each: Public, module: str) -> Iterator[str]:
    if not api.text(each):
        yield "docstring"
    if isinstance(each, griffe.Function):
        yield from _misses_of_call(each)
    if not (has_example(api.text(each)) or api.is_error(each) or _is_shown_value(each, module)):
        yield "example"


def _misses_of_member(each: Member, kind: griffe.Class) -> Iterator[str]:
    if not api.about(each, kind):
        yield "docstring"
    if isinstance(each, griffe.Attribute):
        if not api.type_of(each, kind):
            yield "types"
        return
    yield from _misses_of_call(each)
    if not (has_example(api.text(each)) or re.search(rf"\.{each.name}\(", code(api.text(kind)))):
        yield "example"


def _misses_of_call(each: griffe.Function) -> Iterator[str]:
    arguments = [one for one in each.parameters if one.name not in ("self", "cls")]
    if each.returns is None or any(one.annotation is None for one in arguments):
        yield "types"
    if not ERROR.search(api.text(each)):
        yield "errors"


def _is_shown_value(each: Public, module: str) -> bool:
    """Return whether it is a value of which the example of a call shows one."""
    if not isinstance(each, griffe.Class) or any(isinstance(one, griffe.Function) for one in api.members(each)):
        return False
    return any(name in _with_examples(module) for name in CALL.findall(api.text(each)))


@cache
def _with_examples(module: str) -> frozenset[str]:
    """The functions and methods of a module that have an example, as "Queue.stats"."""
    found = set()
    for each in api.names(module):
        if isinstance(each, griffe.Function):
            found |= {each.name} if has_example(api.text(each)) else set()
        else:
            calls = [one for one in api.members(each) if isinstance(one, griffe.Function)]
            found |= {f"{each.name}.{one.name}" for one in calls if has_example(api.text(one))}
    return frozenset(found)


def main() -> None:
    """Print what is missed, with the numbers last."""
    found = [*misses()]
    for what, name in sorted(found):
        print(f"{what:<10} {name}")
    print("; ".join(f"{sum(each == what for each, _ in found)} without {what}" for what in MISSED))


if __name__ == "__main__":
    main()
