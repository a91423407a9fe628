"""What each older version of PySpark can do: batches and the sink of streams from 4.0 on, streams from 4.2 on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from shardq.client import Queue
from tests.parts import JAVA, OLDER_SPARKS, SPARKS
from tests.spark.programs import ROOT

pytestmark = [pytest.mark.runs_in("test-all"), pytest.mark.timeout(300), JAVA.needed, SPARKS.needed]
STREAMS = {"4.0": "refused", "4.1": "refused", "4.2": "121+30"}
"""Events of the journal (60 written, 30 delivered, 30 acked, its own setting), and messages consumed; or no streams."""


@pytest.mark.parametrize("version", OLDER_SPARKS)
def test_an_older_pyspark_does_what_it_can(version: str, queue: Queue, url: str, tmp_path: Path) -> None:
    queue.configure(journal=1000)
    python = str(OLDER_SPARKS[version] / "bin" / "python")
    beside = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, "PYTHONPATH": str(ROOT)}
    left = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    environment = left | beside | {"SPARK_LOCAL_IP": "127.0.0.1"}
    words = [python, "-m", "tests.spark.versions_app", url, queue.name, str(tmp_path)]
    told = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr[-6000:]
    assert told.stdout.split() == ["done", "60", "30", STREAMS[version]]
    assert queue.len() == (30 if STREAMS[version] == "refused" else 0)
