"""How long functions and files of the package are. `make lint` prints files that grow long: a note, not a rule."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "shardq").rglob("*.py"))
MANY_LINES = 250
MAX_LINES_OF_FUNCTION = 60


def lengths() -> dict[str, int]:
    """Lines by file."""
    return {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in FILES}


def functions(source: str) -> Iterator[tuple[str, int]]:
    """The functions in *source*, those in others too, each with its number of lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def long_functions(source: str) -> list[str]:
    """The names of those that have too many lines."""
    return [name for name, lines in functions(source) if lines > MAX_LINES_OF_FUNCTION]


if __name__ == "__main__":
    for name, lines in lengths().items():
        if lines > MANY_LINES:
            print(f"note: {name} has {lines} lines; one noun is mostly under {MANY_LINES}")
