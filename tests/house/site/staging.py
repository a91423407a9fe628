"""The pages of docs/ and all that they lead to, in one folder: docs/ becomes its top, so links are written anew."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.house.doc_blocks import ROOT

DOCS: Final = ROOT / "docs"
LINK: Final = re.compile(r"(\]\()([^)\s#]+)")
CODE: Final = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
NO_SEARCH: Final = "---\nsearch:\n  exclude: true\n---\n\n"
"""What pages begin with that are led to from docs/, and are not in the menu."""
DRAWN: Final = "```mermaid\n"
SCRIPT: Final = "\n<script src='{up}assets/mermaid.min.js'></script>\n"
"""What draws diagrams, from the site itself. The theme would ask another server for it."""


def place(path: Path) -> Path:
    """Return where a file of the repository is on the site, from its top."""
    return path.relative_to(DOCS if path.is_relative_to(DOCS) else ROOT)


def targets(page: Path) -> Iterator[Path]:
    """The files of the repository to which a page leads."""
    for part in CODE.split(page.read_text(encoding="utf-8"))[::2]:
        for _, link in LINK.findall(part):
            if ":" not in link:
                yield (page.parent / link).resolve()


def led_to() -> set[Path]:
    """All pages of docs/, and the files to which they lead, and so on."""
    found, waiting = set[Path](), {*DOCS.rglob("*.md"), *DOCS.glob("site.*")}
    while waiting:
        path = waiting.pop()
        found.add(path)
        if path.suffix == ".md":
            waiting |= {each for each in targets(path) if each.is_file()} - found
    return found


def rewritten(page: Path, source: str) -> str:
    """Return the text of a page with links as they are on the site. What is not there is at the *source*."""
    return written_anew(page.read_text(encoding="utf-8"), page, source)


def written_anew(text: str, page: Path, source: str) -> str:
    """Return a text of a page with such links."""
    here = place(page).parent

    def lead(found: re.Match[str]) -> str:
        target = (page.parent / found[2]).resolve()
        if ":" in found[2]:
            return found[0]
        if target.is_file():
            return found[1] + Path(os.path.relpath(place(target), here)).as_posix()
        return f"{found[1]}{source}/tree/main/{target.relative_to(ROOT).as_posix()}"

    parts = CODE.split(text)
    parts[::2] = [LINK.sub(lead, part) for part in parts[::2]]
    return "".join(parts)


def stage(folder: Path, source: str) -> list[Path]:
    """Put all pages into a folder. Return where those are that have diagrams."""
    drawn = []
    for path in sorted(led_to()):
        to = folder / place(path)
        to.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix != ".md":
            shutil.copyfile(path, to)
            continue
        text = rewritten(path, source)
        to.write_text(text if path.is_relative_to(DOCS) else NO_SEARCH + text, encoding="utf-8")
        if DRAWN in text:
            drawn.append(to)
    return drawn
