"""`shardq pipeline archive` of queues that are gone, made anew, without a journal, or that come later."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardq import Client
from shardq.client import Queue
from shardq.spark.pipelines.archive import Archive
from tests.spark.pipelines.conftest import Shardq
from tests.spark.pipelines.test_moving import work

pytestmark = [pytest.mark.timeout(300), pytest.mark.runs_in("test-all")]
Make = Callable[..., Queue]


@pytest.fixture
def make(client: Client, queue_name: str) -> Make:
    """Makes a queue, with a journal unless it is given none; also one that was deleted before."""

    def make(name: str, journal: int = 100_000) -> Queue:
        queue = client.queue(f"{queue_name}-{name}", streams=4, max_deliveries=2, create=True)
        queue.read_many(1)
        queue.configure(journal=journal)
        return queue

    return make


def aged(folder: Path) -> None:
    """Make the checkpoints ones of a version that knew no ids."""
    for each in folder.glob("_checkpoints/*/offsets/[0-9]*"):
        *head, last = each.read_text().splitlines()
        marks = {
            name: {key: value for key, value in mark.items() if key != "id"} for name, mark in json.loads(last).items()
        }
        each.write_text("\n".join([*head, json.dumps(marks)]))


def archived(spark: Any, folder: Path) -> dict[str, int]:
    """How many events of each queue are in the archive; each is there once."""
    rows = Archive(spark, str(folder)).table("journal").select("queue", "number").collect()
    assert len({(row.queue, row.number) for row in rows}) == len(rows)
    found: dict[str, int] = {}
    for row in rows:
        found[row.queue] = found.get(row.queue, 0) + 1
    return found


@pytest.mark.parametrize("old", [False, True], ids=["now", "older"])
def test_what_is_there_is_archived_and_what_is_not_is_named(
    spark: Any, shardq: Shardq, make: Make, tmp_path: Path, old: bool
) -> None:
    """Nothing was archived when one queue was gone, and a queue made anew was said to have lost millions of events."""
    stays, goes, anew = (make(name) for name in ("stays", "goes", "anew"))
    names = [each.name for each in (stays, goes, anew)]
    for queue in (stays, goes, anew):
        work(queue, 10)
    before = {
        each.name: each.journal(10_000).latest - each.journal(1).events[0].number + 1 for each in (stays, goes, anew)
    }
    assert shardq.report("archive", str(tmp_path), *names)["journal rows"] == sum(before.values())
    if old:
        aged(tmp_path)
    goes.delete(expected=None)
    anew.delete(expected=None)
    again, quiet = make("anew"), make("quiet", journal=0)
    work(again, 20)
    work(stays, 5)
    code, out, err = shardq("archive", str(tmp_path), *names, quiet.name)
    assert (code, "lost" in err) == (5, False), err
    assert f"queue {goes.name!r} is not archived: there is no such queue" in err
    assert f"queue {quiet.name!r} keeps no journal to archive" in err
    assert "queues not archived" in out
    found = archived(spark, tmp_path)
    assert found[goes.name] == before[goes.name]
    assert found[stays.name] == len(stays.journal(10_000).events)
    assert found[anew.name] == before[anew.name] + len(again.journal(10_000).events)
    assert shardq("archive", str(tmp_path), goes.name, quiet.name, "--only", "journal")[0] == 3
    make("goes")
    code, _, err = shardq("archive", str(tmp_path), *names)
    assert (code, archived(spark, tmp_path)[goes.name]) == (0, before[goes.name] + 1), err


def test_a_pattern_finds_queues_that_come_later(
    spark: Any, shardq: Shardq, make: Make, queue_name: str, tmp_path: Path
) -> None:
    one = make("one")
    work(one, 10)
    words = ("archive", str(tmp_path), "--pattern", f"{queue_name}-.*", "--only", "journal")
    assert shardq(*words)[0] == 0
    two, _ = make("two"), make("quiet", journal=0)
    work(two, 10)
    one.delete(expected=None)
    code, _, err = shardq(*words)
    assert (code, "lost" in err) == (0, False), err
    assert archived(spark, tmp_path)[two.name] == len(two.journal(10_000).events)
    two.delete(expected=None)
    code, _, err = shardq(*words)
    assert (code, "no queue to archive matches" in err) == (3, True)
    assert shardq("archive", str(tmp_path), one.name, *words[2:])[0] == 2
    with pytest.raises(SystemExit, match="2"):
        shardq("archive", str(tmp_path), "--pattern", "(")
