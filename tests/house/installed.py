"""What a page installs has to be in the environment of its reader already."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

OURS = Path(sys.executable).parents[1]
"""The environment of the tests."""
CHECKOUT = "../shardq"  # where a page has the project that is installed


def satisfied(words: list[str], folder: Path, environment: Path) -> None:
    """Fail unless all is in *environment* that `pip install` would install."""
    wanted = [word.replace(CHECKOUT, "shardq") for word in words]
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(environment / "bin" / "python"),
        "install",
        "--dry-run",
        "--no-index",
        "--disable-pip-version-check",
        *wanted,
    ]
    told = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    said = told.stdout + told.stderr
    assert told.returncode == 0, said
    assert "Would install" not in said, said
    assert "does not provide the extra" not in said, said
