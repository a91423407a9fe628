"""Small files of a folder: whoever is killed while one is written leaves the old one or the new one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardq.spark.pipelines.checkpoint import CHECKPOINTS, Checkpoint
from shardq.spark.pipelines.folder import Folder

pytestmark = [pytest.mark.timeout(120), pytest.mark.runs_in("test-all")]


@pytest.mark.parametrize("step", ["write", "delete", "rename"])
def test_a_file_that_is_written_anew_survives_a_kill_at_any_step(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    folder = Folder(spark, f"file://{tmp_path}")
    Checkpoint.begin(folder, "journal", 7, {"jobs": {"to": 1}})
    with monkeypatch.context() as patched:
        patched.setattr(Folder, step, killed)
        with pytest.raises(KeyboardInterrupt):
            Checkpoint.begin(folder, "journal", 7, {"jobs": {"to": 2}})
    found = Checkpoint.newest(Folder(spark, str(tmp_path)), "journal")
    assert (found.base, found.points()) == (7, {"jobs": {"to": 2 if step == "rename" else 1}})
    Checkpoint.begin(folder, "journal", 7, {"jobs": {"to": 3}})
    assert Checkpoint.newest(folder, "journal").points() == {"jobs": {"to": 3}}
    assert folder.names(CHECKPOINTS) == ["journal-from-000000000007.json"]


def test_a_file_of_which_only_the_beginning_was_written_is_none(spark: Any, tmp_path: Path) -> None:
    folder = Folder(spark, str(tmp_path))
    folder.write(b'{"jobs": {"to": 1}', CHECKPOINTS, "journal-from-000000000007.json.new")
    assert Checkpoint.newest(folder, "journal").base == 0
