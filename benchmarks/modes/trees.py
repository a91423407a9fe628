"""The checkout to compare with: a folder, or a commit of this repository, which is unpacked under `.bench/`."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

from benchmarks.settings import ROOT
from benchmarks.workers.environments import CACHE


class Tree(NamedTuple):
    """A checkout, and the commit that it is of (as far as git knows)."""

    folder: Path
    commit: str


def tree_of(base: str) -> Tree | None:
    """The tree that `--base` names; None for none. Raises SystemExit when there is no such folder or commit."""
    if not base:
        return None
    folder = Path(base).expanduser().absolute()
    if (folder / "shardq" / "__init__.py").is_file():
        return Tree(folder.resolve(), _git(folder, "rev-parse", "--short", "HEAD") or "a folder")
    if commit := _git(ROOT, "rev-parse", "--short", "--verify", "--quiet", f"{base}^{{commit}}"):
        return Tree(_unpacked(commit), commit)
    raise SystemExit(f"--base {base}: neither the folder of a checkout nor a commit of this one")


def _unpacked(commit: str) -> Path:
    folder = CACHE / f"tree-{commit}"
    if not (folder / "shardq").exists():
        folder.mkdir(parents=True, exist_ok=True)
        packed = subprocess.run(["git", "archive", commit, "shardq", "lua"], cwd=ROOT, check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, check=True)
    return folder


def _git(folder: Path, *words: str) -> str:
    """What git says, "" where it fails."""
    done = subprocess.run(["git", *words], cwd=folder, check=False, capture_output=True, text=True)
    return done.stdout.strip()
