"""`shardq pipeline what-if`: Spark replays each hour under each setting, as plain Python does."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from shardq.model import Limits
from shardq.spark.pipelines.what_if import compared_by_spark
from shardq.whatif.alternative import Alternative
from shardq.whatif.comparison import compared
from shardq.whatif.tables import recorded
from tests.reports.rows import BEGIN, folder_of, job, setting, waiting, worker
from tests.spark.pipelines.conftest import Shardq

pytestmark = [pytest.mark.timeout(300), pytest.mark.runs_in("test-all")]
HOUR = 3600.0
ALTERNATIVES = [
    Alternative("1 worker", workers=1),
    Alternative("gold 9", workers=2, weights={"gold": 9}),
    Alternative("one at a time", limits={"tin": Limits(max_in_flight=1)}),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Jobs of three hours of four, more than their two workers do; some wait when an hour begins, one for ever."""
    rng = random.Random("what if")
    times = sorted(rng.uniform(0, 4 * HOUR) for _ in range(150))
    jobs = [
        job(
            rng.choice(("gold", "tin", "zinc")),
            round(at, 3),
            float(rng.choice((20, 60))),
            wait=float(rng.randrange(90)),
        )
        for at in times
        if not 0.9 * HOUR <= at < 2 * HOUR
    ]
    stays = [worker("a", -60, None, 1), worker("b", -60, 3 * HOUR, 1)]
    known = [setting(-60, "key", "gold", weight=2)]
    return folder_of(tmp_path / "jobs", [*jobs, waiting("tin", 2.5 * HOUR)], settings=known, capacity=stays)


def test_each_row_is_that_of_plain_python(spark: Any, folder: Path) -> None:
    hours = recorded(folder).hours("jobs")
    assert [(begin - BEGIN) / HOUR for begin in hours] == [0, 2, 3]
    plain = {begin: compared(history, ALTERNATIVES, within=30.0) for begin, history in hours.items()}
    assert [each.name for each in plain[BEGIN].outcomes] == [
        "as it was",
        "replayed",
        *(each.name for each in ALTERNATIVES),
    ]
    assert len({each.all for one in plain.values() for each in one.outcomes}) > 5  # so rows can be told apart
    assert compared_by_spark(spark, hours, ALTERNATIVES, within=30.0) == plain


def test_the_command_shows_each_hour_and_counts_those_that_keep_the_objective(shardq: Shardq, folder: Path) -> None:
    words = ("what-if", str(folder), "--workers", "1,40", "--within", "10s", "--before", "2026-11-30")
    assert shardq(*words)[0] == 3
    told = shardq.report(*words[:-1], "2026-11-30T03:00")
    assert [(each["hour"], each["name"]) for each in told["rows"]] == [
        (hour, name)
        for hour in ("2026-11-30 00:00", "2026-11-30 02:00")
        for name in ("as it was", "replayed", "1 workers", "40 workers")
    ]
    assert "40 workers: the objective is kept in 2 of 2 hours" in told["remarks"]
    assert "1 workers: the objective is kept in 0 of 2 hours" in told["remarks"]
    code, out, err = shardq(*words[:-2], "--since", "2026-11-30T03:00")
    assert code == 0, err
    assert [line.split()[0] for line in out.splitlines()[:6]] == ["2026-11-30", "setting", "as", "replayed", "1", "40"]


def test_very_many_hours_are_refused(shardq: Shardq, tmp_path: Path) -> None:
    made = folder_of(tmp_path / "jobs", [job("a", 0), job("a", 40 * 24 * HOUR)])
    code, _, err = shardq("what-if", str(made), "--workers", "1")
    assert (code, "name fewer with --since and --before" in err) == (2, True), err
