"""The table of jobs of real queues: complete, once, and the same however it is made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from shardq import Client
from shardq.client import Queue
from shardq.errors import ConfigError, QueueMissing
from shardq.jobs import compacting, live
from shardq.jobs.compacting import compact
from shardq.jobs.folder import FolderRun, TableFolder, by_day
from shardq.jobs.making import Archived, LiveQueue, make, make_file, settings_if_there
from shardq.jobs.schema import JOBS
from shardq.jobs.step import State, advance
from tests.jobs.life import live as work
from tests.jobs.naive import Model
from tests.jobs.test_pivot import key, of_model, of_rows
from tests.servers import Server

TO_COME = "9999-12-31"
"""A day before which are all others."""
KEYS = [(name, "ascending") for name in ("queue_id", "message_id", "redriven")]


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client.from_url(server.url) as client:
        yield client


@pytest.fixture(params=[1, 3])
def queue(client: Client, queue_name: str, request: pytest.FixtureRequest) -> Queue:
    """A queue whole, and one with partitions."""
    queue = client.queue(queue_name, streams=4, journal=100_000, partitions=request.param)
    queue.declare()
    return queue


def add(queue: Queue, out: Path) -> TableFolder:
    client = queue._client
    make(LiveQueue(client, [queue.name]), out, lambda *each: settings_if_there(client, *each))
    return TableFolder(out)


def written(rows: pa.Table) -> int:
    return len(rows.filter(pc.equal(rows["redriven"], 0)))


def test_jobs_and_open_ones_are_as_many_as_were_written(queue: Queue, tmp_path: Path) -> None:
    count = work(queue)
    folder = add(queue, tmp_path / "jobs")
    jobs, opened = folder.table("jobs"), folder.open()
    assert written(jobs) + written(opened) == count == queue.stats().written
    assert len({*jobs["message_id"].to_pylist(), *opened["message_id"].to_pylist()}) == count
    assert {*jobs["outcome"].to_pylist()} >= {"acked", "rejected", "cancelled"}
    assert pc.all(jobs["whole"]).as_py()
    work(queue)
    folder = add(queue, tmp_path / "jobs")
    jobs, opened = folder.table("jobs"), folder.open()
    assert written(jobs) + written(opened) == queue.stats().written
    stats = queue.stats()
    assert len(opened) == stats.backlog + stats.in_flight + stats.delayed


def test_a_row_is_what_a_loop_over_the_events_makes_of_them(queue: Queue) -> None:
    work(queue, 60)
    events = pa.concat_tables([each.events for each in live.steps(queue._client, queue.name, [])])
    state, made = advance(State(), events)
    model = Model()
    for event in in_ms(events):
        model.read(event)
    model.finish([])
    blocked = ("pause", "rate", "cap")
    for rows, jobs in ((made.jobs, model.ended), (state.open, [*model.open.values()])):
        mine = [{name: row[name] for name in row if name not in blocked} for row in of_rows(rows)]
        theirs = [{name: row[name] for name in row if name not in blocked} for row in map(of_model, jobs)]
        assert sorted(mine, key=key) == sorted(theirs, key=key)


def in_ms(events: pa.Table) -> list[dict[str, Any]]:
    def ms(time: Any) -> int | None:
        return None if time is None else round(time.timestamp() * 1000)

    rows = [{**each, "time": ms(each["time"]), "due": ms(each["due"])} for each in events.to_pylist()]
    return sorted(rows, key=lambda each: (each["time"], each["partition"], each["number"]))


def test_a_run_that_was_killed_is_made_once_more(queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work(queue)
    add(queue, tmp_path / "jobs")
    work(queue)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(TableFolder, "finish", killed)
        with pytest.raises(KeyboardInterrupt):
            add(queue, tmp_path / "jobs")
    assert list((tmp_path / "jobs" / "jobs").glob("day=*/run=000000000001/*.parquet")) != []
    before = TableFolder(tmp_path / "jobs").table("jobs")
    work(queue)  # so the repeated run has more than the killed one
    folder = add(queue, tmp_path / "jobs")
    jobs = folder.table("jobs")
    assert written(jobs) + written(folder.open()) == queue.stats().written
    assert len({(row["message_id"], row["redriven"]) for row in jobs.to_pylist()}) == len(jobs)
    assert len(before) < len(jobs)
    once = tmp_path / "once.parquet"
    make_file(LiveQueue(queue._client, [queue.name]), once, lambda *_: None)
    names = [name for name in JOBS.names if not name.startswith("blocked")]
    assert pq.read_table(once).select(names).sort_by(KEYS) == jobs.select(names).sort_by(KEYS)


def test_an_archive_gives_the_rows_of_the_live_journal(queue: Queue, tmp_path: Path) -> None:
    client, archive = queue._client, tmp_path / "archive" / "journal"
    folders = []
    for batch in range(2):
        work(queue)
        folders.append(add(queue, tmp_path / "live"))
        events = pa.concat_tables([each.events for each in live.steps(client, queue.name, [])])
        before = archived_upto(archive)
        for day, rows in by_day(events.append_column("ended_at", events["time"])):
            where = archive / f"batch={batch:012d}" / f"queue={quote(queue.name, safe='')}" / f"day={day}"
            where.mkdir(parents=True)
            numbered = zip(rows["partition"].to_pylist(), rows["number"].to_pylist(), strict=True)
            new = rows.filter(pa.array([number > before.get(part, 0) for part, number in numbered]))
            pq.write_table(new.drop(["queue", "ended_at"]), where / "part.parquet")
        make(
            Archived(tmp_path / "archive", [queue.name]), tmp_path / "archived",
            lambda *each: settings_if_there(client, *each),
        )  # fmt: skip
    ours = TableFolder(tmp_path / "archived")
    assert ours.table("jobs").sort_by(KEYS) == folders[-1].table("jobs").sort_by(KEYS)
    assert ours.open().sort_by(KEYS) == folders[-1].open().sort_by(KEYS)


def test_a_folder_that_was_merged_has_the_rows_of_the_live_journal(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacting, "MAX_RUNS", 1)
    for _ in range(4):
        work(queue, 30)
        folder = add(queue, tmp_path / "jobs")
    before, numbered = folder.table("jobs").sort_by(KEYS), folder.newest().number
    compact(folder.path, numbered, TO_COME)
    assert all(len([*day.glob("run=*")]) == 2 for day in folder.path.glob("jobs/day=*"))
    assert folder.table("jobs").sort_by(KEYS) == before
    once = tmp_path / "once.parquet"
    make_file(LiveQueue(queue._client, [queue.name]), once, lambda *_: None)
    names = [name for name in JOBS.names if not name.startswith("blocked")]
    assert pq.read_table(once).select(names).sort_by(KEYS) == before.select(names)
    work(queue)
    folder = add(queue, tmp_path / "jobs")  # a merged folder goes on
    assert written(folder.table("jobs")) + written(folder.open()) == queue.stats().written


@pytest.mark.once
def test_a_run_says_up_to_when_it_read_also_if_nothing_happened(
    client: Client, queue_name: str, tmp_path: Path
) -> None:
    queue = client.queue(queue_name, streams=4, journal=1000)
    queue.write(b"x", shard_key="a")
    first = add(queue, tmp_path).newest()
    between = live.server_ms(client, queue.state) / 1000
    second = add(queue, tmp_path).newest()
    assert max(first.until.values()) / 1000 <= first.upto <= between <= second.upto
    assert second.until == first.until


def archived_upto(archive: Path) -> dict[int, int]:
    found: dict[int, int] = {}
    for each in archive.rglob("*.parquet"):
        rows = pq.read_table(each, partitioning=None)
        for part, number in zip(rows["partition"].to_pylist(), rows["number"].to_pylist(), strict=True):
            found[part] = max(number, found.get(part, 0))
    return found


@pytest.mark.once
def test_what_is_lost_is_marked(client: Client, queue_name: str, tmp_path: Path) -> None:
    queue = client.queue(queue_name, streams=4, journal=10)
    first = queue.write(b"x", shard_key="a")
    add(queue, tmp_path / "jobs")
    for _ in range(100):
        queue.write_many([(b"x", "b")] * 20)
    queue.read().ack()
    folder = add(queue, tmp_path / "jobs")
    lost = folder.table("lost").to_pylist()
    assert sum(each["events"] for each in lost) > 1000
    rows = {row["message_id"]: row["whole"] for row in [*folder.open().to_pylist(), *folder.table("jobs").to_pylist()]}
    assert not rows[first]
    assert any(rows.values())


@pytest.mark.once
def test_jobs_of_a_queue_that_is_made_anew_vanished(client: Client, queue_name: str, tmp_path: Path) -> None:
    queue = client.queue(queue_name, streams=4, journal=1000)
    former = queue.write(b"x", shard_key="a")
    add(queue, tmp_path / "jobs")
    queue.delete(expected=None)
    other = client.queue(queue_name, streams=4, journal=1000)
    newer = other.write(b"x", shard_key="a")
    folder = add(other, tmp_path / "jobs")
    (row,) = folder.table("jobs").to_pylist()
    assert (row["message_id"], row["outcome"], row["whole"]) == (former, "vanished", False)
    assert folder.open()["message_id"].to_pylist() == [newer]


@pytest.mark.once
def test_two_runs_at_once_are_refused(client: Client, queue_name: str, tmp_path: Path) -> None:
    queue = client.queue(queue_name, streams=4, journal=1000)
    queue.write(b"x", shard_key="a")
    with TableFolder(tmp_path).locked(), pytest.raises(ConfigError, match="another run"):
        add(queue, tmp_path)


@pytest.mark.once
def test_a_queue_without_a_journal_is_told_how_to_begin_one(client: Client, queue_name: str, tmp_path: Path) -> None:
    client.queue(queue_name, streams=4).write(b"x", shard_key="a")
    with pytest.raises(ConfigError, match="journal=1000000 begins one"):
        make(LiveQueue(client, [queue_name]), tmp_path, lambda *_: None)


@pytest.mark.parametrize("parent", ["run=7", "run=abc"])
def test_folders_above_it_may_be_called_as_runs_are(queue: Queue, tmp_path: Path, parent: str) -> None:
    queue.write(b"", shard_key="a")
    folder = add(queue, tmp_path / parent / "jobs")
    assert len(folder.open()) == 1
    folder = add(queue, tmp_path / parent / "jobs")
    assert len(folder.open()) == 1


def test_a_run_with_nothing_new_says_how_many_jobs_are_open(queue: Queue, tmp_path: Path) -> None:
    class Nothing:
        def steps(self, run: FolderRun) -> Iterator[tuple[pa.Table, FolderRun]]:
            return iter(())

    queue.write(b"", shard_key="a")
    add(queue, tmp_path / "jobs")
    assert make(Nothing(), tmp_path / "jobs", lambda *_: None).open == 1


def test_a_damaged_folder_is_called_so(queue: Queue, tmp_path: Path) -> None:
    queue.write(b"", shard_key="a")
    folder = add(queue, tmp_path / "jobs")
    [opened] = folder.path.glob("open/*/*.parquet")
    opened.write_bytes(b"PAR1")
    with pytest.raises(ConfigError, match=r"open\.parquet is no table of jobs, or is damaged"):
        folder.open()
    [done] = folder.path.glob("runs/*.json")
    for text in ("{", "{}", "[]"):
        done.write_text(text)
        with pytest.raises(ConfigError, match="the folder is damaged"):
            folder.newest()


def test_files_of_others_beside_those_of_runs_count_for_nothing(queue: Queue, tmp_path: Path) -> None:
    queue.write(b"", shard_key="a")
    folder = add(queue, tmp_path / "jobs")
    (folder.path / "runs" / "5.json").write_text("{")
    (folder.path / "open" / "run=old").mkdir()
    assert folder.newest().number == 0
    assert len(add(queue, folder.path).open()) == 1


def test_a_queue_that_is_gone_leaves_the_others_their_jobs(queue: Queue, tmp_path: Path) -> None:
    work(queue)
    source = LiveQueue(queue._client, ["gone", queue.name])
    made = make(source, tmp_path, lambda *_: None)
    assert made.jobs == len(TableFolder(tmp_path).table("jobs")) > 0
    assert [*source.queues.missing] == ["gone"]
    with pytest.raises(QueueMissing, match="gone"):
        make(LiveQueue(queue._client, ["gone"]), tmp_path, lambda *_: None)
