"""Packages that import their parts when these are first asked for (PEP 562), so that a program loads what it uses.

Type checkers need the same imports below `TYPE_CHECKING`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib import import_module


def modules_of(package: str, names: Collection[str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a *package* with modules of these *names*."""

    def imported(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_module(f"{package}.{name}")

    return imported


def names_from(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a *package* that has these names from other *modules*."""

    def imported(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return imported
