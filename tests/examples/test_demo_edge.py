"""The demo of the edge does its job on a part of its input, with everything failing on the way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.runs_in("test-all")

ROOT = Path(__file__).resolve().parents[2]


def test_each_file_is_stored_once() -> None:
    command = [sys.executable, "-m", "examples.demo_edge", "--files", "400"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "the link was cut 5 times" in told.stdout
    assert told.stdout.count("SIGKILL to the") == 2
    assert "400 files on disk, 400 messages in the queue" in told.stdout
    assert told.stdout.splitlines()[-1].startswith("PASSED: 400 files, each stored once, in ")
