"""The parts of a value, each with the step that leads to it: a path says where in it something is wrong.

Paths show names of fields and numbers of places. Keys of dicts are the payload's own, so a path shows those that are
names of the annotation, and `[...]` for the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain
from typing import Any, Final

MAX_PATH: Final = 300
"""Letters of a path in an error: nobody reads the rest of what is nested so deeply."""
MAX_DEPTH: Final = 1000
MISSING: Final = object()
"""In place of an attribute that is not set."""


def fields_of(value: Any) -> Sequence[str] | None:
    """Return the names of the fields of a dataclass, Struct, model or named tuple; None for anything else."""
    kind = type(value)
    if (names := getattr(kind, "__struct_fields__", None)) is not None:
        return tuple(names)
    if dataclasses.is_dataclass(kind):
        return [each.name for each in dataclasses.fields(kind)]
    for attribute in ("__attrs_attrs__", "__pydantic_fields__", "_fields"):
        if (found := getattr(kind, attribute, None)) is not None:
            more = getattr(value, "__pydantic_extra__", None) or ()
            return [getattr(each, "name", each) for each in chain(found, more)]
    return None


def parts_of(value: Any, names: Collection[str] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the steps into *value*, and what is there. Keys that are among *names* are shown."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield "[...]", key
            yield (f".{key}" if key in names else "[...]"), part
    elif (fields := fields_of(value)) is not None:
        for name in fields:
            yield f".{name}", getattr(value, name, MISSING)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for number, part in enumerate(value):
            yield f"[{number}]", part


def refused_part(value: Any, encode: Callable[[Any], object], names: Collection[str] = ()) -> tuple[str, Any]:
    """Return the path to the innermost part of *value* that *encode* refuses, as it refuses the whole, and the part."""
    path = ""
    for _ in range(MAX_DEPTH):
        found = next(((step, part) for step, part in parts_of(value, names) if not _takes(encode, part)), None)
        if found is None:
            break
        path, value = path + found[0], found[1]
    return bounded(path), value


def bounded(path: str) -> str:
    """Return a path for an error: the beginning of a long one."""
    return path if len(path) <= MAX_PATH else f"{path[:MAX_PATH]}…"


def _takes(encode: Callable[[Any], object], part: Any) -> bool:
    try:
        encode(part)
    except Exception:  # noqa: BLE001 (of any type's making)
        return False
    return True


def kind_of(value: object) -> str:
    """Return the name of a value's type, with its module.

    >>> from datetime import date
    >>> kind_of(True), kind_of(date(2026, 1, 2))
    ('bool', 'datetime.date')
    """
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
