"""The code blocks of README.md and docs/: found, and run: `python -m tests.house.doc_blocks docs/worker.md`.

The python blocks of one document share their names, in order, as a reader would type them. `await` may stand outside
of a function. A block right after `<!-- no-run: reason -->` is left out, and counted. Pages with `<!-- follow -->` are
followed as `following` says.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
MARK = re.compile(r"<!-- (no-run|terminal): (.+?) -->\s*\Z")
URL = "redis://localhost:6379"  # what the documents say; the blocks run on an embedded server


@dataclass(frozen=True)
class Block:
    """One fenced block of a document: `skipped` says why it does not run, `terminal` where it is typed."""

    document: str
    line: int
    language: str
    code: str
    skipped: str | None
    terminal: str = ""

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def documents() -> list[Path]:
    """README.md and all of docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(document: Path) -> Iterator[Block]:
    """Every fenced block of *document*; a block that is indented, in a list say, is none."""
    text = document.read_text()
    name = document.relative_to(ROOT).as_posix() if document.is_relative_to(ROOT) else document.name
    for found in FENCE.finditer(text):
        marked = MARK.search(text, 0, found.start())
        mark, said = marked.groups() if marked else ("", "")
        line = text.count("\n", 0, found.start(2)) + 1
        yield Block(
            name, line, found[1], found[2], said if mark == "no-run" else None, said if mark == "terminal" else ""
        )


def compiled(block: Block, url: str) -> CodeType:
    """The code of *block*, with the document's own line numbers and with *url* in place of the documents'."""
    text = "\n" * (block.line - 1) + block.code.replace(URL, url)
    # Not with the annotations as texts that this module has: a page has its own.
    code = compile(text, block.document, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    assert isinstance(code, CodeType)
    return code


def run(document: Path, url: str) -> None:
    """Run the python blocks of *document* in order."""
    names = {"__name__": "__main__"}
    with asyncio.Runner() as runner:
        for block in blocks(document):
            if block.language == "python" and not block.skipped:
                code = compiled(block, url)
                result = eval(code, names)  # noqa: S307 - the project's own documents
                if code.co_flags & inspect.CO_COROUTINE:
                    runner.run(result)


def main() -> None:
    """Run the documents named on the command line, or follow those that are followed."""
    from shardq.embedded import EmbeddedServer
    from tests.house import following
    from tests.house.installed import OURS

    parser = argparse.ArgumentParser(prog="python -m tests.house.doc_blocks")
    parser.add_argument("documents", nargs="+", type=Path)
    parser.add_argument(
        "--environment", type=Path, default=OURS, help="follow them with the commands of this virtual environment"
    )
    parser.add_argument("--together", action="store_true", help="one reader follows all of them, in their order")
    asked = parser.parse_args()
    environment = asked.environment.absolute()
    if asked.together:
        following.follow([document.resolve() for document in asked.documents], environment)
        return
    for document in asked.documents:
        if following.is_followed(document) or asked.environment != OURS:
            following.follow([document.resolve()], environment)
            continue
        with EmbeddedServer() as server:
            run(document.resolve(), server.url)


if __name__ == "__main__":
    main()
