"""What a web server imports that only writes calls."""

from __future__ import annotations

import subprocess
import sys


def test_tasks_import_no_worker() -> None:
    """Workers bring multiprocessing along, and took most of the time."""
    asked = (
        "import shardq; before = set(sys.modules); import shardq.tasks; "
        "print(sorted(each for each in set(sys.modules) - before if not each.startswith('shardq.tasks')))"
    )
    ended = subprocess.run([sys.executable, "-c", f"import sys; {asked}"], capture_output=True, text=True, check=True)
    brought = set(eval(ended.stdout))  # noqa: S307 (a list of names that the line above has printed)
    heavy = {"multiprocessing", "shardq.worker.workers", "shardq.worker.lane", "shardq.worker.keeper"}
    assert not heavy & brought
