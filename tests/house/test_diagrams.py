"""The diagrams in the documents are those of the tables."""

from __future__ import annotations

import pytest

from shardq.worker.state import LIFE
from tests.house.diagrams import PAGE, drawn, redrawn


def test_the_page_shows_the_tables() -> None:
    page = PAGE.read_text()
    assert redrawn(page) == page, "run `make diagrams`"


def test_a_table_that_changed_changes_its_drawing() -> None:
    assert "running --> draining: stop" in drawn(LIFE)
    assert "running --> stopped: stop" in drawn({**LIFE, "running": {"stop": "stopped"}})
    with pytest.raises(ValueError, match="life"):
        redrawn("no place")
