"""What the pages tell a reader to install, and the commands that they show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.house.doc_blocks import ROOT, blocks, documents

INSTALL = re.compile(r"pip install ([^`\n]+)")
PROJECT = re.compile(r"(?:\.|\.\./shardq|shardq)(?:\[([\w,]+)\])?")
COMMAND = re.compile(r"^(?:\$ )?(?:.*\| )?shardq ([a-z][\w-]*(?: [a-z][\w-]*)?)", re.MULTILINE)
SHELLS = {"console", "sh", "bash", "shell", ""}
FIRST = "README.md"
"""What it installs is there on pages that install nothing."""


class Install(NamedTuple):
    """What a line installs: extras of the project, and other packages."""

    extras: frozenset[str]
    others: tuple[str, ...]


class Page(NamedTuple):
    """A page, what a reader of it has installed, and the commands of `shardq` that it shows, by their first words."""

    name: str
    installs: tuple[Install, ...]
    commands: tuple[str, ...]


def pages() -> list[Page]:
    """All pages of the docs; FIRST comes first."""
    found = [page_of(path) for path in documents()]
    assert found[0].name == FIRST
    assert found[0].installs, f"{FIRST} says how shardq is installed"
    return [each if each.installs else each._replace(installs=found[0].installs) for each in found]


def page_of(path: Path) -> Page:
    """What a page installs itself, and shows."""
    shown = [block for block in blocks(path) if block.language in SHELLS]
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    commands = dict.fromkeys(words for block in shown for words in COMMAND.findall(block.code))
    return Page(name, tuple(installs_in(path.read_text())), tuple(commands))


def installs_in(text: str) -> Iterable[Install]:
    """What the lines of a page install that install the project; `pip install` may stand in a sentence, too."""
    for line in INSTALL.findall(text):
        words = shlex.split(line, comments=True)
        projects = [found for word in words if (found := PROJECT.fullmatch(word))]
        if projects:
            extras = {name for found in projects if found[1] for name in found[1].split(",")}
            yield Install(frozenset(extras), tuple(word for word in words if not PROJECT.fullmatch(word)))
