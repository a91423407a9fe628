"""Runs of tests that are made up: the settings of the real ones, in a folder of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).resolve().parents[2]


def inherited() -> dict[str, str]:
    """The environment without what is of the run in which this test runs."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "PYTEST_", "SHARDQ_"))}


def run(
    folder: Path,
    *words: str,
    program: Sequence[str] = ("pytest", "-q"),
    before: Sequence[str] = (),
    more: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.Popen[str]:
    """pytest, or a *program* of the house that runs it, in a *folder* with tests; *more* is of its environment.

    The options of pytest are in a variable, so that what the program starts has them, too.
    """
    options = f"-c {ROOT / 'pyproject.toml'} --rootdir={folder} -p no:cacheprovider --basetemp={folder / 'run'}"
    environment = inherited() | {
        "PYTEST_ADDOPTS": options,
        "PYTHONPATH": str(ROOT),
        "SHARDQ_FLICKERS": str(folder / "flickers"),
        "SHARDQ_TEST_GRACE": "0.5",
        **more,
    }
    command = [*before, sys.executable, "-m", *program, *words]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
