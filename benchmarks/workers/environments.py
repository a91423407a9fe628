"""An environment for each contender, made when it is first needed, with pinned versions, under `.bench/`."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.settings import ROOT
from benchmarks.workers.contenders import Contender

CACHE = ROOT / ".bench"


class Missing(Exception):
    """The packages of a contender could not be fetched."""


def programs(contender: Contender) -> Path:
    """The folder of `python` or `node` and the contender's programs; Missing when its packages cannot be fetched."""
    if contender.ours:
        return Path(sys.executable).parent
    packages = sorted(contender.packages)
    digest = hashlib.sha256(" ".join([sys.version, *packages]).encode()).hexdigest()[:8]
    folder = CACHE / f"{contender.module.removesuffix('_jobs')}-{digest}"
    if not (folder / "ready").exists():
        (_make_node if contender.node else _make)(folder, packages)
    return folder / "bin"


def _make(folder: Path, packages: list[str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    print(f"making an environment for {', '.join(packages)}", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check", *packages]
    done = subprocess.run(pip, check=False, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise Missing((done.stderr.strip().splitlines() or ["pip said nothing"])[-1])
    (folder / "ready").touch()


def _make_node(folder: Path, packages: list[str]) -> None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        raise Missing("Node and npm are not on PATH")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/node").symlink_to(node)
    print(f"making an environment for {', '.join(packages)}", file=sys.stderr, flush=True)
    done = subprocess.run(
        [npm, "install", "--silent", "--prefix", str(folder), *packages], check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise Missing((done.stderr.strip().splitlines() or ["npm said nothing"])[-1])
    (folder / "ready").touch()


def present_of(asked: Sequence[Contender]) -> tuple[list[Contender], dict[str, str]]:
    """Those whose packages can be fetched, and why the others are missing."""
    present, missing = [], {}
    for contender in asked:
        try:
            programs(contender)
            present.append(contender)
        except Missing as error:
            missing[contender.name] = str(error)
    return present, missing
