"""Environments with what somebody installs, and nothing else: one for each extra, and for each line of a page."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from tests.house.following import HOUR, hour
from tests.house.wheel import probe
from tests.house.wheel.archives import PIP, ROOT, ran
from tests.house.wheel.pages import Install, Page

FOLLOWED = {"README.md": ["README.md"], HOUR[0]: hour()}
"""What a newcomer reads first, by the page that installs: followed from the install line to the result."""

OURS = {"bench", "dev", "everything", "test"}
"""Extras for those who work on shardq."""


class Environment(NamedTuple):
    """What is installed, and what the pages show that install just this."""

    install: Install
    shown: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        extras = f"[{','.join(sorted(self.install.extras))}]" if self.install.extras else "the core"
        return " ".join((extras, *self.install.others))

    def make(self, wheel: Path, python: str, folder: Path) -> Path:
        """Make it in *folder* with a *python*. Return its own Python. Failed if that cannot be done."""
        ran(python, "-m", "venv", "--without-pip", str(folder))
        there = folder / "bin" / "python"
        extras = f"[{','.join(sorted(self.install.extras))}]" if self.install.extras else ""
        ran(*PIP, "--python", str(there), "install", "--no-compile", f"{wheel}{extras}", *self.install.others)
        return there

    def look(self, python: Path, lacks: list[str] | None) -> probe.Found:
        """Look at what a user meets there. *lacks* are the modules that need an extra, None if this is the core."""
        request = probe.Request(sorted(self.install.extras), [*self.shown], lacks)
        found = ran(str(python), "-I", probe.__file__, json.dumps(asdict(request)))
        return probe.Found(**json.loads(found))

    def follow(self, python: Path) -> list[str]:
        """Follow those of FOLLOWED that install just this. Return what is wrong with them."""
        where = ["--environment", str(python.parents[1]), "--together"]
        command = [sys.executable, "-m", "tests.house.doc_blocks", *where]
        problems = []
        for page in sorted({page for page, _ in self.shown} & FOLLOWED.keys()):
            told = subprocess.run([*command, *FOLLOWED[page]], cwd=ROOT, capture_output=True, text=True)
            if told.returncode:
                problems.append(f"{page}, followed as a reader does, ends in {told.stderr.strip()[-1000:]}")
        return problems


def environments(pages: Iterable[Page]) -> Iterator[Environment]:
    """One for the core, which is the first, for each extra, and for each other line of the pages."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys() - OURS
    shown: dict[Install, dict[tuple[str, str], None]] = {
        Install(frozenset(each), ()): {} for each in [(), *((name,) for name in sorted(extras))]
    }
    for page in pages:
        for install in page.installs:
            shown.setdefault(install, {}).update(dict.fromkeys((page.name, words) for words in page.commands))
    for install, commands in shown.items():
        yield Environment(install, tuple(commands))
