"""Fairness from a journal: counts, fair shares, Jain's index, delays, neighbours, and late events."""

from __future__ import annotations

import random
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardq.errors import ConfigError
from shardq.sharding import overlap, shard
from shardq.spark.pipelines import report, shards
from shardq.spark.pipelines.fairness.follow import follow
from shardq.spark.pipelines.fairness.neighbours import neighbourhood
from shardq.spark.pipelines.fairness.pipeline import Request, run
from shardq.spark.pipelines.fairness.service import fairness
from shardq.spark.pipelines.fairness.tallies import tallied
from tests.spark.pipelines.history import BEGIN, History, Naive, random_history, time_of

pytestmark = [pytest.mark.timeout(300), pytest.mark.runs_in("test-all")]
WINDOW = 60


def quiet() -> report.Progress:
    return report.Progress(report.Report("fairness"))


def second(row: Any) -> int:
    return int(row.window.timestamp())


def test_counts_fair_shares_and_delays_are_those_of_a_naive_count(spark: Any, rng: random.Random) -> None:
    history = random_history(rng, 400, keys=12, windows=6, window=WINDOW)
    naive, tallies = Naive(history.rows, WINDOW), tallied(history.frame(spark), WINDOW).persist()
    found = fairness(tallies, WINDOW)
    rows = {(second(row), row.shard_key): row for row in found.by_key.collect()}
    demands = naive.demands()
    assert {at: demand for at, demand in demands.items() if demand} == {
        at: {key: row.demand for (when, key), row in rows.items() if when == at} for at in {at for at, _ in rows}
    }
    for (at, key), row in rows.items():
        assert {name: row[name] for name in ("arrived", "picked", "repeated", "left", "acked", "nacked")} == {
            name: naive.counts[at, key][name] for name in ("arrived", "picked", "repeated", "left", "acked", "nacked")
        }
        served = sum(naive.counts[at, each]["picked"] for each in demands[at])
        assert row.fair == pytest.approx(naive.fair(demands[at], served)[key])
        if delays := naive.delays[at, key]:
            exact: Any = np.percentile(delays, [50, 95, 99])
            assert [row.p50, row.p95, row.p99] == pytest.approx(exact.tolist(), rel=0.011)
    for row in found.by_window.collect():
        at = second(row)
        served = sum(naive.counts[at, key]["picked"] for key in demands[at])
        fair = naive.fair(demands[at], served)
        ratios = [naive.counts[at, key]["picked"] / fair[key] for key in fair if fair[key]]
        jain = sum(ratios) ** 2 / (len(ratios) * sum(each**2 for each in ratios)) if any(ratios) else None
        assert row.jain == (pytest.approx(jain) if jain is not None else None)
    assert sum(row.share for row in found.keys.collect()) == pytest.approx(1)


def test_a_starved_key_counts_in_windows_in_which_nothing_happened_to_it(spark: Any) -> None:
    """And what was served without having been written was waiting before the journal began."""
    history = History()
    waiting = history.message(1_000, "starved")
    for at in range(0, 300_000, 1_000):
        history.tell(at, "delivered", f"{BEGIN - 5_000}-{at}-1", "flood", 1)
    history.tell(299_000, "delivered", waiting, "starved", 1)
    found = fairness(tallied(history.frame(spark), WINDOW), WINDOW)
    windows = found.by_window.orderBy("window").collect()
    assert [row["keys"] for row in windows] == [2] * 5
    assert [row.jain == pytest.approx(1) for row in windows] == [False] * 4 + [True]
    keys = {row.shard_key: row for row in found.keys.collect()}
    assert keys["flood"].demand == 300 + 240 + 180 + 120 + 60
    assert (keys["starved"].windows, keys["starved"].owed) == (5, pytest.approx(4))
    assert keys["flood"].noisy == 4  # in the last window it asks for no more than it gets


def test_who_shares_streams_with_a_flood_is_told_with_how_it_fared(spark: Any) -> None:
    history, tenants = History(), [f"t{number}" for number in range(40)]
    flooded = set(shard("flood", 8, 2))
    for at in range(0, 60_000, 100):
        message = history.message(at, "flood", shard("flood", 8, 2)[0])
        if at % 1000 == 0:
            history.tell(at + 50_000, "delivered", message, "flood", 1)
    for key in tenants:
        slow = set(shard(key, 8, 2)) <= flooded
        message = history.message(500, key, shard(key, 8, 2)[0])
        history.tell(500 + (40_000 if slow else 10), "delivered", message, key, 1)
    tallies = tallied(history.frame(spark), WINDOW)
    keys = fairness(tallies, WINDOW).keys
    found = neighbourhood(keys, tallies, shards.dealt(keys.select("queue", "shard_key"), 8, 2))
    shared = [overlap(shard(key, 8, 2), flooded) for key in tenants]
    assert [(each.shard_key, each.sharing) for each in found.noisy] == [("flood", (shared.count(1), shared.count(2)))]
    assert {each.clean: each.keys for each in found.clean} == {
        2 - each: shared.count(each) for each in (0, 1, 2) if each in shared
    }
    fared = {each.clean: each.p95 for each in found.clean}
    assert fared[1] == pytest.approx(10, rel=0.011)
    if 0 in fared:
        assert fared[0] == pytest.approx(40_000, rel=0.011)
        assert found.noisy[0].worst[0].shared == 2


class Page(HTMLParser):
    """What a browser would fetch or run, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.sources: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href") or name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_tables_a_picture_and_a_page_that_needs_nothing_else(spark: Any, tmp_path: Path) -> None:
    history = History("jobs/eu")
    hostile = "<script>alert('$x$')</script>\x1b[31m"
    for at in range(0, 120_000, 500):
        key = hostile if at % 1000 else f"quiet-{at % 7000}"
        history.tell(at + 70, "delivered", history.message(at, key, at % 8), key, 1)
    progress = quiet()
    (found,) = run(history.frame(spark), Request(WINDOW, (8, 2), None, f"file://{tmp_path}/"), progress)
    assert found.totals["picked"] == 240
    assert progress.report.figures["queues"][0]["jain"] == pytest.approx(1)
    assert (
        progress.report.remarks[0]
        == "jobs/eu: service was fair: Jain's index was at least 0.9 in all 2 windows with service"
    )
    text = (tmp_path / "jobs_eu.html").read_text()
    page = Page(text)
    assert "script" not in page.tags
    assert hostile.removesuffix("\x1b[31m") in page.text
    assert "\x1b" not in text
    assert [source[:22] for source in page.sources] == ["data:image/png;base64,"]
    assert (tmp_path / "jobs_eu.png").read_bytes().startswith(b"\x89PNG")
    assert spark.read.parquet(str(tmp_path / "by_window")).agg({"picked": "sum"}).first()[0] == 240
    assert not re.search(r"https?://", text)
    assert "2025-11-21 04:40:00 to 2025-11-21 04:41:00 UTC" in text


def test_late_events_are_dropped_by_the_watermark_and_all_others_counted(spark: Any, tmp_path: Path) -> None:
    """A delayed message's due time is hours ahead: it must not make everything else late."""
    on_time, late = History(), History()
    for at in range(0, 600_000, 10_000):
        on_time.tell(at + 40, "delivered", on_time.message(at, "a"), "a", 1)
    on_time.message(5_000, "a", due=7 * 3600_000)
    late.tell(61_000, "delivered", late.message(60_000, "b"), "b", 1)
    folder, out = tmp_path / "events", tmp_path / "report"
    window = WINDOW

    def run(history: History) -> int:
        history.frame(spark).coalesce(1).write.mode("append").parquet(str(folder))
        events = spark.readStream.schema(history.frame(spark).schema).parquet(str(folder))
        return follow(events, Request(window, (8, 2), "jobs", f"file://{out}"), progress, lateness=120)

    progress = quiet()
    assert run(on_time) == 0
    assert run(late) > 0
    assert (out / "jobs.html").exists()
    assert progress.report.figures["queues"][0]["picked"] == 7 * 6
    closed = spark.read.parquet(str(out / "tallies"))
    assert closed.where("shard_key = 'b'").count() == 0
    # The newest event is at 590 s; less 120 s, the windows that ended by 470 s are closed: seven of them.
    assert closed.agg({"picked": "sum"}).first()[0] == 7 * 6
    assert closed.agg({"arrived": "sum"}).first()[0] == 7 * 6 + 1
    assert closed.where(closed.window == time_of(BEGIN + 7 * 3600_000)).count() == 1
    window = 30
    with pytest.raises(
        ConfigError, match=r"report follows 'jobs' with windows of 60 s, not 'jobs' with windows of 30 s"
    ):
        run(on_time)


def test_what_is_no_journal_is_refused_with_the_column_named(spark: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"journal events need the column queue, kind, .* the columns there are: time"
    ):
        run(spark.sql("select timestamp'2026-01-01' as time"), Request(), quiet())
    with pytest.raises(ConfigError, match=r"column time of journal events is string: it must be timestamp"):
        tallied(History().frame(spark).withColumn("time", _text()), 60)
    with pytest.raises(ConfigError, match=r"there are no journal events: is the queue's journal on"):
        run(History().frame(spark), Request(), quiet())
    with pytest.raises(ConfigError, match=r"window must be a whole number of seconds from 1 to 2,678,400, not 0"):
        tallied(History().frame(spark), 0)


def _text() -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    return F.lit("soon")
