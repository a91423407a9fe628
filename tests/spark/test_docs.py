"""What docs/spark.md shows works, docs/spark-consuming.md after it, and the examples of the reference."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from shardq import Client
from tests.house import doc_blocks, docstrings

CONSUMING = doc_blocks.ROOT / "docs" / "spark-consuming.md"


@pytest.mark.runs_in("test-all")
@pytest.mark.timeout(300)
def test_the_pages_run(spark: Any, url: str, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    pages = [doc_blocks.ROOT / "docs" / name for name in ("spark.md", "spark-consuming.md")]
    blocks = [block for page in pages for block in doc_blocks.blocks(page) if block.language == "python"]
    for block in blocks:
        exec(doc_blocks.compiled(block, url), names)  # noqa: S102 - our own page
    assert blocks
    shown = capsys.readouterr().out
    assert "backlog" in shown
    assert "Settlement(settled=400, lost=0, cancelled=0, dead=0)" in shown
    assert client.queue("jobs", create=True).len() == 0
    assert client.queue("jobs", create=True).stats().written == 2000
    client.queue("jobs").delete(expected=None)


@pytest.mark.runs_in("test-all")
@pytest.mark.timeout(300)
def test_the_pages_sink_has_all_that_was_acked_after_its_checkpoint_was_lost(
    spark: Any, url: str, client: Client
) -> None:
    [consuming] = [block for block in doc_blocks.blocks(CONSUMING) if "def work(" in block.code]
    names: dict[str, Any] = {"spark": spark, "url": url}
    queue = client.queue("jobs", create=True)
    queue.write_many([(f"{at}", f"tenant-{at % 20}") for at in range(600)])
    exec(doc_blocks.compiled(consuming, url), names)  # noqa: S102 - our own page
    assert queue.stats().acked == 600
    shutil.rmtree(f"{names['folder']}-checkpoint")
    queue.write_many([(f"{at}", f"tenant-{at % 20}") for at in range(600, 900)])
    names["query"].trigger(availableNow=True).start().awaitTermination()
    assert queue.stats().acked == 900
    sink = spark.read.parquet(names["folder"])
    assert (sink.count(), sink.select("message_id").distinct().count()) == (900, 900)
    queue.delete(expected=None)


@pytest.mark.runs_in("test-all")
@pytest.mark.timeout(300)
def test_the_examples_of_the_reference_run(spark: Any, url: str, client: Client) -> None:
    def fresh() -> str:
        client.queue("jobs", create=True).declare()
        client.queue("jobs", create=True).delete(expected=None)
        return url

    assert "\n".join(docstrings.run_all("shardq.spark", fresh, spark=spark)) == ""
