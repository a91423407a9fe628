"""A day of scaling in little: what each scaler does while it passes, and the rules of Kubernetes that it goes by."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks import __main__ as program
from benchmarks import day
from benchmarks.day.autoscaler import COOLDOWN, SYNC, Autoscaler, by_average, by_usage
from benchmarks.day.plan import Span, an_hour, whole_day
from benchmarks.day.pods import Deployment, Later
from benchmarks.day.scalers import LEAD, Length, Scaler, StreamLength, own
from benchmarks.day.simulation import Day, Found
from tests.servers import Server

pytestmark = [pytest.mark.once, pytest.mark.runs_in("test-all"), pytest.mark.timeout(120)]
MINUTE = 60.0
SEED = 1
SCALERS: dict[str, Callable[[], Scaler]] = {
    "load": lambda: own("load", 4),
    "drain": lambda: own("drain", 60),
    "age": lambda: own("age", 20),
    "len": lambda: Length(4),
}
OWN = ("load", "drain", "age")


@pytest.fixture(scope="module")
def seen() -> dict[str, Found]:
    """What was found already: the tests look at the same days."""
    return {}


@pytest.fixture
def hour(server: Server, seen: dict[str, Found]) -> Callable[[str], Found]:
    def found(name: str) -> Found:
        if name not in seen:
            seen[name] = passed(server, SCALERS[name]())
        return seen[name]

    return found


def passed(server: Server, scaler: Scaler) -> Found:
    """Let the hour pass with a scaler."""
    with server.client() as connection:
        return Day(connection, "day", an_hour(SEED), scaler, SEED).run()


def pods(found: Found, begin: float, end: float) -> list[int]:
    """The replicas that were wanted, from one minute to another."""
    return [each.replicas for each in found.samples if begin * MINUTE < each.at < end * MINUTE]


def waits(found: Found, kind: str) -> list[float]:
    """How long messages of a kind waited."""
    return [wait for _, wait, its in found.waits if its == kind]


@pytest.mark.parametrize("name", OWN)
def test_a_quiet_night_takes_no_worker(name: str, hour: Callable[[str], Found]) -> None:
    assert set(pods(hour(name), -1, 30 - LEAD / MINUTE)) == {0}


@pytest.mark.parametrize("name", OWN)
def test_what_is_due_soon_starts_a_worker_in_time(name: str, hour: Callable[[str], Found]) -> None:
    assert len(waits(hour(name), "due")) == 3
    assert max(waits(hour(name), "due")) < 0.1
    assert min(waits(hour("len"), "due")) > 30  # a pod takes as long to start


@pytest.mark.parametrize("name", OWN)
def test_what_waits_for_a_limit_starts_nobody(name: str, hour: Callable[[str], Found]) -> None:
    # Sixty messages wait of a tenant of which one may be delivered each eight seconds: about eight run at once.
    assert max(pods(hour(name), 40, 59)) <= 3
    assert max(pods(hour("len"), 40, 59)) >= 15


@pytest.mark.parametrize("name", OWN)
def test_what_waits_for_the_end_of_a_pause_starts_nobody(name: str, hour: Callable[[str], Found]) -> None:
    before = 118 - LEAD / MINUTE
    assert set(pods(hour(name), 112.1, before)) == {0}
    assert min(pods(hour("len"), 112.1, before)) > 0


@pytest.mark.parametrize("name", [*OWN, "len"])
def test_while_redis_is_away_the_replicas_stay(name: str, hour: Callable[[str], Found]) -> None:
    during = pods(hour(name), 128.1, 133)
    assert len(during) >= 18
    assert during[0] > 0
    assert set(during) == {during[0]}
    assert hour(name).unknown > 18
    assert hour(name).undone == 0
    assert len(hour(name).waits) == len(an_hour(SEED).arrivals)


def test_all_scalers_have_the_same_day() -> None:
    assert whole_day(SEED) == whole_day(SEED)
    assert whole_day(SEED) != whole_day(SEED + 1)


def test_xlen_does_not_count_what_waits_behind_others_of_its_tenant(server: Server) -> None:
    found = passed(server, StreamLength(4))
    assert max(pods(found, 60, 70)) == 1  # beside a flood of sixty


# --- Kubernetes ---------------------------------------------------------------------------------------------------


def test_pods_are_added_as_many_as_there_are_or_four() -> None:
    scaler = Autoscaler(0, 30, replicas=1)
    grown = []
    for number in range(5):
        scaler.sync(30, SYNC * number)
        grown.append(scaler.replicas)
    assert grown == [5, 10, 20, 30, 30]


def test_no_pod_goes_that_was_wanted_in_the_last_five_minutes() -> None:
    scaler = Autoscaler(0, 30, replicas=10)
    scaler.sync(10, 0)
    for at in range(15, 300, 15):
        scaler.sync(3, at)
        assert scaler.replicas == 10
    scaler.sync(3, 300)
    assert scaler.replicas == 3


def test_the_last_pods_go_after_the_cooldown() -> None:
    scaler = Autoscaler(0, 30)
    scaler.look(active=True, now=0)
    assert scaler.replicas == 1
    scaler.look(active=False, now=COOLDOWN)
    assert scaler.replicas == 1
    scaler.look(active=None, now=COOLDOWN + 1)
    assert scaler.replicas == 1
    scaler.look(active=False, now=COOLDOWN + 2)
    assert scaler.replicas == 0


def test_without_an_answer_the_replicas_stay() -> None:
    scaler = Autoscaler(0, 30, replicas=7)
    scaler.sync(None, 1000)
    assert scaler.replicas == 7


@pytest.mark.parametrize(
    ("metric", "replicas", "wanted"), [(40, 10, 10), (43, 10, 10), (45, 10, 12), (0, 3, 0), (1, 0, 1)]
)
def test_a_tenth_more_or_less_changes_nothing(metric: float, replicas: int, wanted: int) -> None:
    assert by_average(metric, 4, replicas) == wanted


def test_usage_of_cpu() -> None:
    assert by_usage([], 2, 0.5, 2) is None
    assert by_usage([0.5, 0.52], 0, 0.5, 2) == 2
    assert by_usage([0.9, 0.9], 0, 0.5, 2) == 4
    assert by_usage([0.9, 0.9], 2, 0.5, 4) == 4  # two more are starting
    assert by_usage([0.1, 0.1, 0.1], 0, 0.5, 3) == 1


def test_a_deploy_replaces_all_pods_a_few_at_a_time() -> None:
    later = Later()
    deployment = Deployment(later, lambda _: None, lambda _: None, SEED)
    deployment.scale(8, 0.0)
    for at in moments(later):
        assert len(deployment.staying()) <= 10
        if deployment.replicas == 8 and len(deployment.ready(at)) == 8:
            break
    first = {pod.number for pod in deployment.pods}
    deployment.deploy(100.0)
    for at in moments(later):
        assert len(deployment.ready(at)) >= 6
        assert len(deployment.staying()) <= 10
    assert len(deployment.pods) == 8
    assert not first & {pod.number for pod in deployment.pods}


def moments(later: Later) -> Iterator[float]:
    """Do what is to be done, one after the other."""
    while item := later.next():
        at, action = item
        action()
        yield at


def test_a_span() -> None:
    assert [Span(1, 2).has(at) for at in (0.9, 1, 2)] == [False, True, False]


def test_the_mode_compares_scalers_at_their_best_targets(tmp_path: Path) -> None:
    words = ["day", "--seconds", "1", "--only", "load,XLEN", "--json", str(tmp_path), "--link", "unix"]
    table, tried = program.run(words)
    assert [row[0] for row in table.rows] == [day.OURS, day.XLEN]
    assert len(tried.rows) == 5
    for each in (table, tried):
        assert {len(row) for row in each.rows} == {len(each.columns)}
    kept = json.loads((tmp_path / "day.json").read_text())["data"]
    assert kept.keys() == {day.OURS, day.XLEN, "events"}
    assert kept[day.OURS]["pods"][0] == [0.0, 0]
