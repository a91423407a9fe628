"""What a history makes of rows of the table of jobs."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from shardq.jobs.schema import CAPACITY, JOBS
from shardq.whatif.history import NOBODY, Arrival, History, Stay, Try, history_of

BEGAN = 1_790_000_000.0
Row = dict[str, Any]


def row(**more: Any) -> Row:
    """A job that waited 2 s and ran 3 s; times are seconds since the begin."""
    usual: Row = {
        "shard_key": "t", "task": "mail", "written_at": 0, "ready_at": 0, "first_at": 2, "last_at": 2, "ended_at": 5,
        "attempts": 1, "uncounted": 0, "wait_s": 2.0, "held_s": 3.0, "ran_s": 3.0, "outcome": "acked",
    }  # fmt: skip
    found = dict.fromkeys(JOBS.names) | usual | more
    return {
        name: moment(BEGAN + value) if name.endswith("_at") and value is not None else value
        for name, value in found.items()
    }


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def told(*rows: Row, since: float | None = None) -> History:
    found = history_of("q", rows, (), (), None if since is None else BEGAN + since)
    assert found is not None
    return found


def only(**more: Any) -> Arrival:
    (arrival,) = told(row(**more)).arrivals
    return arrival


def test_a_job_runs_as_long_as_it_ran() -> None:
    assert only() == Arrival(BEGAN, BEGAN, "t", (Try(3.0),), 2.0, BEGAN + 5)
    assert only(ran_s=None).tries == (Try(3.0),)  # as long as it was held


def test_a_delay_is_no_wait() -> None:
    delayed = only(ready_at=60, first_at=61, last_at=61, ended_at=64, wait_s=1.0)
    assert (delayed.delay, delayed.waited) == (60, 1)


def test_tries_share_what_ran_and_delays_double() -> None:
    # 2 waited, 3 ran, 1 + 2 delayed and 1 waited twice, 3 ran, ...
    found = only(last_at=15, ended_at=18, attempts=3, wait_s=3.0, held_s=9.0, ran_s=9.0)
    assert found.tries == (Try(3.0, 2.0), Try(3.0, 4.0), Try(3.0))


def test_deliveries_that_do_not_count_are_no_tries() -> None:
    assert len(only(attempts=4, uncounted=3).tries) == 1
    assert len(only(attempts=2, uncounted=2).tries) == 1


def test_a_job_that_nobody_began_is_cancelled_when_it_ended() -> None:
    never = row(first_at=None, last_at=None, ran_s=None, attempts=0, outcome="cancelled", shard_key=None)
    history = told(row(), row(ran_s=7.0), row(ran_s=5.0), never)
    assert history.arrivals[3] == Arrival(BEGAN, BEGAN, NOBODY, (Try(5.0),), None, BEGAN + 5, BEGAN + 5)


def test_a_job_that_is_open_runs_as_its_task_does() -> None:
    history = told(row(), row(first_at=None, last_at=None, ended_at=None, ran_s=None, attempts=0))
    assert history.arrivals[1] == Arrival(BEGAN, BEGAN, "t", (Try(3.0),))


def test_what_waited_already_is_written_at_the_begin() -> None:
    waited, came = told(
        row(first_at=100, last_at=100, ended_at=103), row(written_at=70, ready_at=70), since=50
    ).arrivals
    assert (waited.at, waited.ready_at, waited.delay, waited.waited) == (BEGAN + 50, BEGAN, 0, 100)
    assert came.at == BEGAN + 70


def test_workers_are_those_of_which_slots_are_known() -> None:
    stay: Row = dict.fromkeys(CAPACITY.names)
    rows = [stay | {"slots": 4, "from_at": moment(BEGAN)}, stay | {"slots": 4}, stay | {"slots": 2}, stay]
    history = history_of("q", [row()], (), rows)
    assert history is not None
    assert history.stays == [Stay(4, BEGAN, None), Stay(4, None, None), Stay(2, None, None)]
    assert history.slots == 4


def test_without_jobs_there_is_no_history() -> None:
    assert history_of("q", [row(written_at=None)], (), ()) is None


@pytest.mark.parametrize("ran", [math.nan, math.inf, -5.0])
def test_what_no_handler_can_have_run_is_not_replayed(ran: float) -> None:
    """A replay would never end."""
    assert only(ran_s=ran).ran == 0.0
