"""The diagrams in the documents are those of the tables."""

from __future__ import annotations

import pytest

from shardq.sharding import shard
from shardq.worker.state import LIFE
from tests.house import idea_picture, partition_picture
from tests.house.diagrams import DOCS, PAGES, drawn, of_worker, redrawn


@pytest.mark.parametrize("name", PAGES)
def test_the_page_shows_the_tables(name: str) -> None:
    page = (DOCS / name).read_text()
    assert redrawn(page, PAGES[name]) == page, "run `make diagrams`"


def test_a_table_that_changed_changes_its_drawing() -> None:
    assert "running --> draining: stop" in drawn(of_worker(LIFE))
    assert "running --> stopped: stop" in drawn(of_worker({**LIFE, "running": {"stop": "stopped"}}))
    sender = drawn(PAGES["internals/flow.md"]["sender"])
    assert "blocked --> can_send: ack_received [room in the window] / do_ack, timeout [room in the window]" in sender
    with pytest.raises(ValueError, match="life"):
        redrawn("no place", PAGES["worker.md"])


def test_the_picture_of_partitions_shows_the_homes_that_are_dealt() -> None:
    assert partition_picture.PATH.read_text() == partition_picture.drawn(), "run `make diagrams`"


def test_the_picture_of_fairness_shows_the_shards_that_are_dealt() -> None:
    assert idea_picture.PATH.read_text() == idea_picture.drawn(), "run `make diagrams`"
    assert all(
        place in shard(name, idea_picture.STREAMS, idea_picture.STREAMS_PER_SHARD)
        for name, place in idea_picture.placed().items()
    )
