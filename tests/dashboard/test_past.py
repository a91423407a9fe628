"""The lines of the last half hour, and when workers began that live."""

from __future__ import annotations

from msgspec.structs import replace

from shardq.dashboard.past import MINUTE, MINUTES, past
from tests.outlook.given import NOON, minutes, worker

START = NOON - MINUTES * MINUTE


def marks(*started: float) -> list[tuple[float, str]]:
    working = [replace(worker(f"w{at}"), started=each) for at, each in enumerate(started)]
    found = past(minutes(10, written=600, done=600), NOON, working)
    assert found is not None
    return [(each["at"], each["text"]) for each in found["marks"]]


def test_workers_that_began_together_are_one_mark() -> None:
    assert marks(NOON - 600, NOON - 590, NOON - 400) == [(20.0, "3 workers began")]
    assert marks(NOON - 900, NOON - 60) == [(15.0, "1 worker began"), (29.0, "1 worker began")]


def test_only_what_the_chart_shows_is_marked() -> None:
    assert marks(START - 1) == []
    assert marks(NOON - 1) == [(29.0, "1 worker began")]
    assert [at for at, _ in marks(*(NOON - 1500 + 330 * each for each in range(5)))] == [16.0, 21.5, 27.0]
    assert past((), NOON, [worker()]) is None, "without minutes there is no chart"
