"""Packages that are not there: an import of one ends as if nobody had installed it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class Absent(MetaPathFinder):
    """Goes before all other finders of `sys.meta_path`, and finds that modules with these *names* are not there."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """ModuleNotFoundError for one of the names."""
        if name in self._names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
