"""What a page installs: the environment of the tests stands for the reader's, so it has to be there already."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

OURS = Path(sys.executable).parents[1]
"""The environment of the tests."""
CHECKOUT = "../shardq"  # where a page has the project that is installed


def satisfied(words: list[str], folder: Path) -> None:
    """Fail unless all is installed that `pip install` would install."""
    wanted = [word.replace(CHECKOUT, "shardq") for word in words]
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--no-index",
        "--disable-pip-version-check",
        *wanted,
    ]
    told = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)
    said = told.stdout + told.stderr
    assert told.returncode == 0, said
    assert "Would install" not in said, said
    assert "does not provide the extra" not in said, said
