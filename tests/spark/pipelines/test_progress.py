"""What is said while a step runs: one line that changes on a terminal, lines now and then elsewhere."""

from __future__ import annotations

import io
import os
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shardq.cli.pipelines.status_line import CLEARED, StatusLine
from shardq.spark.pipelines.report import PipelineProgress, Report
from shardq.spark.pipelines.watch import Watch, rates, streams
from tests.waiting import eventually

DONE = re.compile(r"3 of \d tasks done")  # counting the rows may be known as a fifth


def test_on_a_terminal_a_line_is_written_anew_and_cut_to_the_width() -> None:
    master, slave = os.openpty()
    with os.fdopen(slave, "w") as stream, os.fdopen(master, "rb", buffering=0) as terminal:
        line = StatusLine(stream)
        line.update("one")
        line.update("x" * 500)
        line.remark("stays \x1b[31m")
        line.update("two")
        line.update("")
        shown = ""
        while shown.count(CLEARED) < 3:
            shown += terminal.read(1 << 16).decode()
    cut = ("shardq: " + "x" * 500)[:79]
    assert shown == f"shardq: one{CLEARED}{cut}{CLEARED}shardq: stays \\x1b[31m\r\nshardq: two{CLEARED}"


def test_elsewhere_each_update_is_a_line_and_rarer() -> None:
    stream = io.StringIO()
    line = StatusLine(stream)
    line.update("one")
    line.update("")
    line.forward("Spark: \tsays")
    assert stream.getvalue() == "shardq: one\nSpark: \tsays\n"
    assert line.every >= 5


@pytest.mark.timeout(120)
def test_a_step_tells_how_many_of_sparks_tasks_are_done_and_how_far_it_is(spark: Any, tmp_path: Path) -> None:
    """Three of four tasks end at once; the fourth waits until that was told."""
    shown: list[str] = []
    gate = tmp_path / "open"

    def work(batches: Any) -> Any:
        for batch in batches:
            if batch.column("id")[0].as_py() == 3:
                eventually(gate.exists, timeout=60)
            yield batch

    def tell(text: str) -> None:
        shown.append(text)
        if DONE.search(text):
            gate.touch()

    progress = PipelineProgress(Report("test"), watch=Watch(tell, 0.05))
    with progress.step("working"):
        progress.sofar = lambda: "half of it"
        assert spark.range(0, 4, 1, 4).mapInArrow(work, "id long").count() == 4
    assert any(re.fullmatch(rf"working: \d+ s, half of it, {DONE.pattern}", text) for text in shown), shown
    assert shown[-1] == ""
    assert not any(thread.name == "watching working" for thread in threading.enumerate())


@pytest.mark.timeout(120)
def test_of_a_stream_the_rows_a_second_are_told(spark: Any, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    try:
        eventually(lambda: re.fullmatch(r"[\d,]+ rows/s come, [\d,]+ rows/s done", streams()), 60, every=0.05)
    finally:
        query.stop()
    assert streams() == ""


def test_what_a_source_measures_is_told_also_while_no_rows_come() -> None:
    quiet = {"numInputRows": 0, "inputRowsPerSecond": float("nan"), "processedRowsPerSecond": 0.0}
    source = SimpleNamespace(metrics={"oldestAgeMs": "1500", "eventsBehind": "40"})
    assert rates(SimpleNamespace(**quiet, sources=[source])) == "eventsBehind 40, oldestAgeMs 1500"
