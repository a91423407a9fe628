"""What the reports say of tables whose rows are known, each worked out by hand or the slow way."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shardq.errors import ConfigError
from shardq.reports.catalog import REPORTS, made
from shardq.reports.errors import NoTables
from shardq.reports.options import Options
from shardq.reports.tables import Tables
from tests.reports.rows import BEGIN, DAY, Row, folder_of, job, waiting, worker


def told_rows(name: str, folder: Path, options: Options | None = None, **when: float) -> list[Any]:
    return [*made(name, folder, options=options, **when).told.rows]


# --- used -------------------------------------------------------------------------------------------------------


def test_used_sums_seconds_attempts_and_failures_by_tenant_task_and_plan(tmp_path: Path) -> None:
    rng = random.Random(7)
    jobs = [
        job(f"t{rng.randrange(5)}/{rng.randrange(3)}", rng.random() * DAY, rng.random() * 9,
            task=rng.choice(["a", "b", None]), plan=rng.choice(["gold", None]),
            attempts=rng.randrange(1, 5), outcome=rng.choice(["acked", "dead"]))
        for _ in range(300)
    ]  # fmt: skip
    rows = told_rows("used", folder_of(tmp_path, jobs))
    for kind, column in (("tenant", "parent"), ("task", "task"), ("plan", "plan")):
        seconds: Counter[str] = Counter()
        attempts: Counter[str] = Counter()
        failed: Counter[str] = Counter()
        for each in jobs:
            name = each[column] or ""
            seconds[name] += each["ran_s"]
            attempts[name] += each["attempts"]
            failed[name] += each["attempts"] - (each["outcome"] == "acked")
        found = {row["name"]: row for row in rows if row["kind"] == kind}
        assert {name: row["seconds"] for name, row in found.items()} == pytest.approx(dict(seconds))
        assert {name: row["attempts"] for name, row in found.items()} == dict(attempts)
        assert {name: row["failed"] for name, row in found.items()} == dict(failed)


def test_used_takes_what_handlers_ran_not_what_was_charged_and_what_was_held_if_nobody_told_that(
    tmp_path: Path,
) -> None:
    jobs = [job("a", 0, 5.0, work_s=0.0), job("b", 0, 7.0, ran_s=None)]
    found = {
        row["name"]: row["seconds"] for row in told_rows("used", folder_of(tmp_path, jobs)) if row["kind"] == "tenant"
    }
    assert found == {"a": 5.0, "b": 7.0}


def test_a_report_is_of_jobs_that_ended_in_its_time(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, [job("a", at * DAY, 1.0) for at in range(5)])
    found = told_rows("used", folder, since=BEGIN + DAY, until=BEGIN + 3 * DAY)
    assert [row["jobs"] for row in found if row["kind"] == "tenant"] == [2]


# --- slo --------------------------------------------------------------------------------------------------------


def test_slo_counts_late_jobs_and_what_is_left_of_the_budget(tmp_path: Path) -> None:
    """Of 100 jobs 2 are late, of 1 job in 100 that may be: twice the budget is used up."""
    jobs = [job("a", at, wait=1.0) for at in range(98)] + [job("b", at, wait=9.0) for at in range(2)]
    told = made("slo", folder_of(tmp_path, jobs)).told
    [queue] = [row for row in told.rows if row["kind"] == "queue"]
    assert (queue["jobs"], queue["late"], queue["met"]) == (100, 2, 0.98)
    assert (queue["burn_rate"], queue["budget_left"]) == (pytest.approx(2), pytest.approx(-1))
    assert told.is_bad
    assert "The objective of 99 % is missed: 98 % of 100 jobs began within 5.0 s." in told.verdict
    [worst] = [table for table in told.tables if table.title == "Worst tenants"]
    assert [row[0] for row in worst.rows] == ["b"]


def test_slo_does_not_count_what_a_tenants_own_pause_rate_or_cap_blocked(tmp_path: Path) -> None:
    jobs = [job("a", at, wait=60.0, blocked_pause_s=30.0, blocked_rate_s=20.0, blocked_cap_s=6.0) for at in range(10)]
    assert not made("slo", folder_of(tmp_path, jobs)).told.is_bad


def test_slo_counts_what_waits_too_long_already_and_not_what_may_still_begin_in_time(tmp_path: Path) -> None:
    jobs = [job("a", 100, 0.5), waiting("a", 10), waiting("a", 99)]
    [queue] = [row for row in told_rows("slo", folder_of(tmp_path, jobs)) if row["kind"] == "queue"]
    assert (queue["jobs"], queue["late"]) == (2, 1)


def test_slo_tells_how_fast_the_budget_burns_in_the_last_hour_six_hours_and_day(tmp_path: Path) -> None:
    """Only in the last hour jobs are late, each second one."""
    hours = [job("a", hour * 3600 + 60 * minute, 1.0, wait=0.0) for hour in range(48) for minute in range(60)]
    late = [job("a", 48 * 3600 + 60 * minute, 1.0, wait=9.0 * (minute % 2)) for minute in range(60)]
    folder = folder_of(tmp_path, hours + late)
    rows = told_rows("slo", folder, until=BEGIN + 49 * 3600)
    burns = {row["name"]: row["burn_rate"] for row in rows if row["kind"] == "last"}
    assert burns == pytest.approx({"1 h": 50, "6 h": 50 / 6, "1 day": 50 / 24})


def test_an_objective_that_is_missed_by_little_is_not_called_met(tmp_path: Path) -> None:
    jobs = [job("a", at / 1000, wait=0.0 if at else 9.0) for at in range(20_000)]
    told = made("slo", folder_of(tmp_path, jobs), options=Options(objective=0.99999)).told
    assert told.verdict.startswith("The objective of 99.999 % is missed: 99.995 % of 20,000 jobs")


# --- cost -------------------------------------------------------------------------------------------------------


def test_cost_is_the_price_of_a_slot_second_and_idle_slots_stand_apart(tmp_path: Path) -> None:
    """Two slots for a day, one of them busy for half of it."""
    jobs = [job("a", 0, 0.25 * DAY), job("b", 0, 0.25 * DAY)]
    folder = folder_of(tmp_path, jobs, capacity=[worker("w", 0, DAY, 2)])
    rows = told_rows("cost", folder, Options(price=0.001, currency="EUR"), until=BEGIN + DAY)
    costs = {(row["SubAccountId"], row["ChargeDescription"]): row["BilledCost"] for row in rows}
    assert costs == pytest.approx({
        ("a", "Work of handlers"): 0.001 * 0.25 * DAY, ("b", "Work of handlers"): 0.001 * 0.25 * DAY,
        ("", "Idle slots of workers"): 0.001 * 1.5 * DAY,
    })  # fmt: skip
    assert {row["BillingCurrency"] for row in rows} == {"EUR"}
    assert {(row["ChargePeriodStart"], row["ChargePeriodEnd"]) for row in rows} == {
        ("2026-11-30T00:00:00Z", "2026-12-01T00:00:00Z")
    }


def test_cost_counts_a_worker_of_several_queues_once_and_no_silence_before_it_was_given_up(tmp_path: Path) -> None:
    stay = worker("w", 0, 100, 3, silent_s=40.0)
    folder = folder_of(tmp_path, [job("a", 0, 1.0)], capacity=[stay, {**stay, "queue": "other", "queue_id": "2-b"}])
    [idle] = [row for row in told_rows("cost", folder, until=BEGIN + DAY) if row["SubAccountId"] == ""]
    assert idle["ConsumedQuantity"] == pytest.approx(3 * 60 - 1)


def test_cost_says_of_a_worker_that_is_still_there_what_it_offered_until_the_end(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, [job("a", 0, 1.0)], capacity=[worker("w", 10, None, 1)])
    [idle] = [row for row in told_rows("cost", folder, until=BEGIN + 110) if row["SubAccountId"] == ""]
    assert idle["ConsumedQuantity"] == pytest.approx(99)


# --- noisy ------------------------------------------------------------------------------------------------------


def weeks(rng: random.Random, last: dict[str, float], *, days: int = 21, wait: float = 0.0) -> list[Row]:
    """Jobs of five tenants by day, with some chance; on the last day so many times as much."""
    jobs = []
    for day in range(days):
        for number in range(5):
            name = f"t{number}"
            times = last.get(name, last.get("all", 1.0)) if day == days - 1 else 1.0
            late = wait * (day == days - 1)
            count = round(20 * (number + 1) * times * rng.uniform(0.8, 1.2))
            jobs += [job(name, day * DAY + rng.random() * (DAY - 100), 2.0, wait=late) for _ in range(count)]
    return jobs


def noisy_in(folder: Path, days: int = 21) -> list[str]:
    made_one = made("noisy", folder, until=BEGIN + days * DAY)
    bad = [row[0] for row in made_one.told.tables[0].rows if row[0] in made_one.told.verdict]
    return bad if made_one.told.is_bad else []


def test_a_tenant_that_does_much_more_than_in_its_own_weeks_is_noisy(tmp_path: Path) -> None:
    assert noisy_in(folder_of(tmp_path, weeks(random.Random(3), {"t1": 6.0}))) == ["t1"]


@pytest.mark.parametrize("seed", range(5))
def test_nobody_is_noisy_on_a_usual_day(tmp_path: Path, seed: int) -> None:
    assert noisy_in(folder_of(tmp_path, weeks(random.Random(seed), {}))) == []


def test_in_an_overload_nobody_is_noisy_who_did_not_bring_it(tmp_path: Path) -> None:
    """All do four times as much, and wait for an hour; one does thirty times as much."""
    assert noisy_in(folder_of(tmp_path / "all", weeks(random.Random(3), {"all": 4.0}, wait=3600))) == []
    brings = weeks(random.Random(3), {"all": 4.0, "t2": 30.0}, wait=3600)
    assert noisy_in(folder_of(tmp_path / "one", brings)) == ["t2"]


def test_a_tenant_that_is_new_is_not_noisy(tmp_path: Path) -> None:
    new = [job("new", 20 * DAY + at, 50.0) for at in range(500)]
    assert noisy_in(folder_of(tmp_path, weeks(random.Random(3), {}) + new)) == []


def test_one_odd_day_before_does_not_hide_a_noisy_one(tmp_path: Path) -> None:
    jobs = weeks(random.Random(3), {"t1": 12.0})
    odd = [job("t1", 5 * DAY + at, 2.0) for at in range(200)]
    assert noisy_in(folder_of(tmp_path, jobs + odd)) == ["t1"]


# --- of all -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_says_which_events_are_missing(tmp_path: Path, name: str) -> None:
    gap = {
        "queue": "jobs",
        "queue_id": "1-a",
        "partition": 0,
        "after_at": BEGIN + 5,
        "before_at": BEGIN + 9,
        "events": 77,
    }
    folder = folder_of(tmp_path, [job("a", 0), job("a", 20)], lost=[gap])
    assert any("77 events" in each for each in made(name, folder).told.remarks)


@pytest.mark.parametrize("name", REPORTS)
def test_there_is_no_report_without_tables_or_jobs(tmp_path: Path, name: str) -> None:
    with pytest.raises(NoTables, match="there is no folder"):
        made(name, tmp_path / "none")
    with pytest.raises(NoTables, match="shardq jobs makes them"):
        made(name, tmp_path)
    with pytest.raises(NoTables, match="has no job"):
        made(name, folder_of(tmp_path / "empty", []))


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_of_a_time_in_which_nothing_happened_says_so(tmp_path: Path, name: str) -> None:
    folder = folder_of(tmp_path, [job("a", 0)])
    told = made(name, folder, since=BEGIN - 5 * DAY, until=BEGIN - 4 * DAY).told
    assert not told.is_bad
    assert told.verdict


def test_cost_has_idle_slots_of_the_last_day_of_many_years(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, [job("a", 0)], capacity=[worker("w", 0, 100, 1)])
    rows = told_rows("cost", folder, since=BEGIN - 7 * 365 * DAY, until=BEGIN + DAY)
    [idle] = [row for row in rows if row["ChargeDescription"] == "Idle slots of workers"]
    assert (idle["ConsumedQuantity"], idle["ChargePeriodStart"]) == (99.0, "2026-11-30T00:00:00Z")


def test_fair_does_not_say_that_nobody_waited_at_the_same_time_where_two_did(tmp_path: Path) -> None:
    jobs = [job(f"t{at % 2}", 0.0, 0.02, wait=0.02 * at) for at in range(200)]
    told = made("fair", folder_of(tmp_path, jobs)).told
    assert told.verdict.startswith("It was fair: of 2 tenants that waited none was given more than is promised.")
    assert {row["kind"] for row in told.rows} == {"pair", "tenant"}
    nothing = made("fair", folder_of(tmp_path / "stuck", [waiting("a", 0), waiting("b", 1), waiting("a", 9)])).told
    assert nothing.verdict == "Nothing was shared: at no time was work given to one of two tenants that both waited."


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_of_a_damaged_file_says_so(tmp_path: Path, name: str) -> None:
    folder = folder_of(tmp_path, [job("a", 0)])
    [file] = folder.glob("jobs/*/*/*.parquet")
    file.write_bytes(b"PAR1")
    with pytest.raises(ConfigError, match="is no table of jobs, or is damaged"):
        made(name, folder)


def test_a_report_ends_when_the_journal_was_read_so_what_waited_then_is_judged(tmp_path: Path) -> None:
    jobs = [job("a", 0), waiting("a", 1)]
    assert made("slo", folder_of(tmp_path / "at once", jobs)).told.rows[0]["late"] == 0
    found = made("slo", folder_of(tmp_path / "later", jobs, upto=60.0))
    assert (found.span.until, found.told.is_bad) == (BEGIN + 60, True)
    assert made("slo", tmp_path / "later", until=BEGIN + 3).told.is_bad is False


def test_a_report_whose_files_are_merged_meanwhile_is_made_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(tmp_path, [job("a", 0), job("b", 1)])
    expected, rows = made("used", folder).told.rows, Tables.rows

    def merged(tables: Tables, report: str, **asked: float | str) -> Sequence[Row]:
        for each in folder.glob("jobs/*/*/part-00000.parquet"):
            each.rename(each.with_name("part-00001.parquet"))
        return rows(tables, report, **asked)

    monkeypatch.setattr(Tables, "rows", merged)
    assert made("used", folder).told.rows == expected
    assert [*folder.glob("jobs/*/*/part-00001.parquet")]
