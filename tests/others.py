"""Files of another user, as a test may have them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

STRANGER = 54_321


def belongs_to_another(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file or folder be another user's: root can give it away; for others, this process becomes somebody else."""
    if os.geteuid() == 0:
        os.chown(path, STRANGER, -1, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
