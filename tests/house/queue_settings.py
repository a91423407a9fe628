"""The keyword arguments of `Client.queue` for type checkers, which cannot read them from `QueueConfig`.

`python -m tests.house.queue_settings` writes them, `--check` compares.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MODEL: Final = Path(__file__).resolve().parents[2] / "shardq" / "model"
SOURCE: Final = MODEL / "settings.py"
MADE: Final = MODEL / "queue_settings.py"

HEAD: Final = '''"""Keyword arguments of `Client.queue`. Generated from settings.py, do not change: run `make twins`."""

from __future__ import annotations

from typing import TypedDict

from shardq.model.settings import Fair, KeyScope


class QueueSettings(TypedDict, total=False):
    """Settings as `Client.queue` takes them. Any may be left out: the fields are those of `QueueConfig`."""

'''


def settings(source: str) -> Iterator[tuple[str, str]]:
    """The fields of the class `QueueConfig` in *source*: name and type."""
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    (config,) = (each for each in classes if each.name == "QueueConfig")
    for node in config.body:
        match node:
            case ast.AnnAssign(target=ast.Name(name), annotation=ast.Subscript(slice=ast.Tuple(elts=[kind, _]))):
                yield name, ast.unparse(kind)


def text() -> str:
    """What the file must be."""
    return HEAD + "".join(f"    {name}: {kind}\n" for name, kind in settings(SOURCE.read_text(encoding="utf-8")))


if __name__ == "__main__":
    if "--check" not in sys.argv:
        MADE.write_text(text(), encoding="utf-8")
    elif not MADE.exists() or MADE.read_text(encoding="utf-8") != text():
        sys.exit("queue_settings.py is not what settings.py makes of it: run make twins")
