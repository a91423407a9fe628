"""What docs/spark.md shows works, and docs/spark-consuming.md after it."""

from __future__ import annotations

from typing import Any

import pytest

from shardq import Client
from tests.house import doc_blocks


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
