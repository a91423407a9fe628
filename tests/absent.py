"""Programs that find some packages missing: what is imported ends as if nobody had installed them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import NoReturn


class Absent(MetaPathFinder):
    """Finds that these *names* are not there, before any other finder is asked."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """ModuleNotFoundError for one of the names."""
        if name in self._names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def main() -> NoReturn:
    """Be the command `shardq` without the packages that the first word names, joined by commas."""
    sys.meta_path.insert(0, Absent(sys.argv[1].split(",")))
    from shardq.cli import main

    sys.exit(main(sys.argv[2:]))


if __name__ == "__main__":
    main()
