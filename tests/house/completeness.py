"""What readers of the API reference miss: `python -m tests.house.completeness` counts it, and names each.

It looks at the public names of `api`: classes, functions, and the methods and fields of classes. What they miss is

- a docstring; a field may be named in backticks, or between stars, by the docstring of its class instead,
- types, of each argument and of the result,
- errors: the docstring of a function names an error that it raises, or says that it raises none,
- an example, in the docstring of a function or of a class that is no error: a block of code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import griffe

from tests.house import api
from tests.house.api import Member, Public
from tests.surface import error_classes

ERROR: Final = re.compile(rf"\b(?:\w+Error|[Rr]aises?|{'|'.join(error_classes())})\b")
"""How a docstring speaks of errors: by the name of one, or by the verb."""
BLOCK: Final = re.compile(r"^```|::$|^\s*>>> ", re.MULTILINE)
MISSED: Final = ("docstring", "types", "errors", "example")


def misses() -> Iterator[tuple[str, str]]:
    """What is missed, each with the name that lacks it, as "shardq.Queue.write"."""
    for module in api.MODULES:
        for each in api.names(module):
            name = f"{module}.{each.name}"
            yield from ((what, name) for what in _misses_of(each))
            if isinstance(each, griffe.Class):
                for member in api.members(each):
                    yield from ((what, f"{name}.{member.name}") for what in _misses_of(member, api.text(each)))


def _misses_of(each: Public | Member, of_class: str = "") -> Iterator[str]:
    text = api.text(each)
    is_told = isinstance(each, griffe.Attribute) and re.search(rf"[`*]{each.name}[`*]", of_class)
    if not text and not is_told:
        yield "docstring"
    if not _is_typed(each):
        yield "types"
    if isinstance(each, griffe.Function) and not ERROR.search(text):
        yield "errors"
    if not isinstance(each, griffe.Attribute) and not api.is_error(each) and not BLOCK.search(text):
        yield "example"


def _is_typed(each: Public | Member) -> bool:
    if isinstance(each, griffe.Function):
        arguments = [one for one in each.parameters if one.name not in ("self", "cls")]
        return each.returns is not None and all(one.annotation is not None for one in arguments)
    return isinstance(each, griffe.Class) or each.annotation is not None


def main() -> None:
    """Print what is missed, with the numbers last."""
    found = [*misses()]
    for what, name in sorted(found):
        print(f"{what:<10} {name}")
    print("; ".join(f"{sum(each == what for each, _ in found)} without {what}" for what in MISSED))


if __name__ == "__main__":
    main()
