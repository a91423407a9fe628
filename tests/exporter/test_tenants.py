"""Tenants have few labels, which stay; what they cost Redis is bounded, however many tenants there are."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from typing import Any

import pytest

from shardq import Client, Limits
from shardq.exporter import tenants
from shardq.exporter.poller import FRESH_SECONDS, Poller
from shardq.exporter.queues import QueueSamples
from shardq.exporter.tenants import LABEL_SECONDS, LARGE_SHARE, OTHER, REST_FACTOR, SURVEY_INTERVAL, LabelPlaces
from shardq.exporter.text import text_of
from shardq.model.worker_status import PICKUP_BOUNDS, TenantWork
from shardq.telemetry.instruments import TENANT_BACKLOG, TENANT_IN_FLIGHT, TENANT_PICKUP, Instrument
from shardq.telemetry.options import hashed
from shardq.testing import ManualClock
from tests.exporter.test_poller import counted
from tests.exporter.test_text import HOSTILE, values
from tests.outlook.given import worker
from tests.servers import Server

MANY = 100_000


def names(number: int, begin: str = "t") -> list[bytes]:
    return [f"{begin}{at}".encode() for at in range(number)]


def test_places_are_few_and_stay() -> None:
    places = LabelPlaces(10)
    places.choose(names(5), (), 0.0)
    assert places.names == names(5)  # all that there are
    places.choose(names(11, "u"), (), 1.0)
    assert len(places.names) == 8  # a fifth is kept
    assert set(names(5)) < set(places.names)
    places.choose(names(11, "v"), [b"v7"], 2.0)
    assert len(places.names) == 9
    assert b"v7" in places.names
    places.choose(names(11, "w"), names(11, "w"), 3.0)
    assert len(places.names) == 10


def test_a_place_is_free_after_a_quarter_of_an_hour() -> None:
    places = LabelPlaces(3)
    places.choose(names(3), (), 0.0)
    places.choose([b"t0", b"new"], (), LABEL_SECONDS - 1)
    assert places.names == names(3)
    places.choose([b"new"], (), LABEL_SECONDS)
    assert places.names == [b"new", b"t0"]


def test_places_at_random(rng: random.Random) -> None:
    """At no time more than so many, and none is taken away before its time."""
    for most in (1, 2, 5, 10, 50):
        places, now, last = LabelPlaces(most), 0.0, dict[bytes, float]()
        for _ in range(200):
            now += rng.choice((1.0, 60.0, 400.0))
            wanted = rng.sample(names(200), rng.randrange(0, most + 2))
            places.choose(wanted, wanted[:2], now)
            assert len(places.names) <= most
            assert {name for name, at in last.items() if now - at < LABEL_SECONDS} <= set(places.names)
            last |= dict.fromkeys(set(wanted) & set(places.names), now)


def shown(samples: QueueSamples, instrument: Instrument = TENANT_BACKLOG) -> dict[str, float]:
    """What tenants have, by their labels, after a survey that was due is done."""
    samples.samples()
    for each in samples._tenants.values():
        each.wait()
    text = text_of(samples.samples())
    return {dict(labels)["tenant"]: value for labels, value in values(text, instrument.text).items()}


def test_the_largest_are_shown_and_the_sum_of_all_others(client: Client, poller: Poller, clock: ManualClock) -> None:
    jobs = client.queue("jobs", streams=4)
    for number in range(1, 6):
        for _ in range(number):
            jobs.write(b"x", shard_key=f"t{number}")
    jobs.read_many(2)
    samples = QueueSamples(poller, ["jobs"], tenants=3)
    backlog, in_flight = shown(samples), shown(samples, TENANT_IN_FLIGHT)
    assert len(backlog) == 4
    assert OTHER in backlog
    assert backlog.keys() == in_flight.keys()
    assert sum(backlog.values()) == 13
    assert sum(in_flight.values()) == 2
    assert backlog["t5"] + in_flight["t5"] == 5
    for _ in range(7):
        jobs.write(b"x", shard_key="t5")
    clock.advance(10)
    assert shown(samples)["t5"] == backlog["t5"] + 7  # without another survey


def test_the_first_page_has_the_names(client: Client, poller: Poller) -> None:
    """A sum of all under `other`, which falls when the names come, would look like a change."""
    jobs = client.queue("jobs", streams=4)
    for number in range(5):
        jobs.write(b"x", shard_key=f"t{number}")
    text = text_of(QueueSamples(poller, ["jobs"], tenants=10).samples())
    found = {dict(labels)["tenant"]: value for labels, value in values(text, TENANT_BACKLOG.text).items()}
    assert found == {**{f"t{number}": 1 for number in range(5)}, OTHER: 0}


def test_until_the_names_are_known_nothing_is_told_of_tenants(
    client: Client, poller: Poller, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they are many, or Redis does not say."""
    monkeypatch.setattr(tenants, "FIRST_SURVEY_SECONDS", 0.0)
    client.queue("jobs", streams=4).write(b"x", shard_key="t")
    samples, gate, right = QueueSamples(poller, ["jobs"], tenants=3), threading.Event(), client.run

    def run(op: Any) -> Any:
        if op.__name__ == "leaders" and not gate.wait(60):
            raise AssertionError
        return right(op)

    monkeypatch.setattr(client, "run", run)
    assert "shardq_tenant" not in text_of(samples.samples())
    gate.set()
    assert shown(samples) == {"t": 1, OTHER: 0}


def test_nobody_is_shown_unless_that_is_wanted(client: Client, poller: Poller) -> None:
    client.queue("jobs", streams=4).write(b"x", shard_key="secret")
    text = text_of(QueueSamples(poller, ["jobs"]).samples())
    assert "secret" not in text
    assert "shardq_tenant" not in text


def test_names_can_be_hidden(client: Client, poller: Poller) -> None:
    jobs = client.queue("jobs", streams=4)
    for name in ("secret", "private"):
        jobs.write(b"x", shard_key=name)
    samples = QueueSamples(poller, ["jobs"], tenants=3, hash_tenants=True)
    assert shown(samples) == {hashed("secret"): 1, hashed("private"): 1, OTHER: 0}
    assert "secret" not in text_of(samples.samples())


@pytest.mark.parametrize("held", ["limited", "paused"])
def test_those_that_are_held_back_come_first(client: Client, poller: Poller, held: str) -> None:
    jobs = client.queue("jobs", streams=4)
    for number in range(20):
        for _ in range(10 + number):
            jobs.write(b"x", shard_key=f"t{number}")
    jobs.write(b"x", shard_key="small")
    if held == "limited":
        jobs.set_limits({"small": Limits(max_in_flight=1), "idle": Limits(max_in_flight=1)})
    else:
        jobs.pause(shard_key="small")
        jobs.pause(shard_key="idle")
    found = shown(QueueSamples(poller, ["jobs"], tenants=4))
    assert found["small"] == 1
    assert "idle" not in found
    assert "t19" in found
    assert len(found) == 5


def test_one_that_begins_to_flood_is_shown_after_the_next_survey(
    client: Client, poller: Poller, clock: ManualClock
) -> None:
    jobs = client.queue("jobs", streams=4)
    for number in range(30):
        jobs.write(b"x", shard_key=f"t{number}")
    samples = QueueSamples(poller, ["jobs"], tenants=10)
    before = shown(samples)
    assert len(before) == 9
    for _ in range(20):
        jobs.write(b"x", shard_key="flood")
    clock.advance(SURVEY_INTERVAL + 1)
    after = shown(samples)
    assert after["flood"] == 20 >= LARGE_SHARE * 50
    assert before.keys() < after.keys()


@pytest.mark.parametrize(
    "name", [each for each in HOSTILE.values() if each and "\ud800" not in each and len(each) < 1000]
)
def test_a_name_that_is_hostile_is_a_label(client: Client, poller: Poller, name: str) -> None:
    client.queue("jobs", streams=4).write(b"x", shard_key=name)
    assert sorted(shown(QueueSamples(poller, ["jobs"], tenants=3)).values()) == [0, 1]


def test_a_name_that_is_no_text_and_one_like_the_sum_are_told_apart(client: Client, poller: Poller) -> None:
    jobs = client.queue("jobs", streams=4)
    for name in (b"\xff\xfe", "other", "other", "fffe"):
        jobs.write(b"x", shard_key=name)
    assert shown(QueueSamples(poller, ["jobs"], tenants=5)) == {"fffe": 1, OTHER: 3}


def test_a_queue_that_does_not_know_its_tenants_has_none(
    client: Client, poller: Poller, caplog: pytest.LogCaptureFixture
) -> None:
    client.queue("jobs", streams=4, window=0).write(b"x", shard_key="t")
    samples = QueueSamples(poller, ["jobs"], tenants=5)
    assert shown(samples) == {}
    assert "shardq_queue_backlog" in text_of(samples.samples())
    assert [each.message for each in caplog.records if "window" in each.message] != []


def test_pickups_are_what_workers_tell(client: Client, poller: Poller, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = client.queue("jobs", streams=4)
    for name in ("big", "big", "small"):
        jobs.write(b"x", shard_key=name)
    past = poller.past("jobs")
    assert past is not None
    others = (0,) * (len(PICKUP_BOUNDS) - 3) + (100, 0, 0)
    told = (
        worker("a", tenants=(TenantWork("big", 5, 0.1, 2.0), TenantWork("small", 5, 0.1, 7.0)), others=()),
        worker("b", tenants=(TenantWork("big", 5, 0.1, 3.0), TenantWork("new", 1, 0.1, None)), others=others),
    )
    monkeypatch.setattr(poller, "past", lambda _: past._replace(workers=told))
    found = shown(QueueSamples(poller, ["jobs"], tenants=1), TENANT_PICKUP)
    assert found["big"] == 3.0
    assert found[OTHER] == pytest.approx(PICKUP_BOUNDS[-3], rel=0.7)


@pytest.mark.runs_in("test-all")
def test_a_hundred_thousand_tenants_have_51_labels_which_cost_little(
    server: Server, client: Client, poller: Poller, clock: ManualClock, rng: random.Random
) -> None:
    jobs = client.queue("jobs", streams=64)
    for begin in range(0, MANY, 1_000):
        jobs.write_many([(b"x", f"t{number}") for number in range(begin, begin + 1_000)])
    samples = QueueSamples(poller, ["jobs"], tenants=50)
    seen: Counter[str] = Counter()
    with counted(server) as done:
        first = shown(samples)
        assert (len(first), sum(first.values())) == (41, MANY)
        for _ in range(60):  # a quarter of an hour, with a scrape each 15 s, and other tenants that become the largest
            jobs.write_many([(b"x", f"t{rng.randrange(MANY)}") for _ in range(100)])
            clock.advance(14.9)
            found = shown(samples)
            assert first.keys() <= found.keys()
            seen.update(found.keys())
    assert len(seen) <= 51
    assert sum(shown(samples).values()) == MANY + 6_000
    # A survey a minute at most, which looks at those it found in two calls; and one call for the labels with each
    # scrape and after each survey.
    assert done["hscan"] <= (2 + 900 / SURVEY_INTERVAL) * (MANY / 1_000 + 10)
    assert done["tenant"] <= 3 * (2 + 900 / SURVEY_INTERVAL) + 62
    tenants = samples._tenants["jobs"]
    assert tenants._next - clock.monotonic() <= SURVEY_INTERVAL


def test_a_survey_that_takes_long_is_made_seldom(
    client: Client, poller: Poller, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.queue("jobs", streams=4).write(b"x", shard_key="t")
    samples = QueueSamples(poller, ["jobs"], tenants=5)
    samples.samples()
    tenants = samples._tenants["jobs"]
    tenants.wait()
    right, times = tenants._choose, list[float]()

    def slow(*given: object) -> None:
        times.append(clock.monotonic())
        clock.advance(10.0)
        right(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(tenants, "_choose", slow)
    for _ in range(100):
        clock.advance(FRESH_SECONDS * 20)
        samples.samples()
        tenants.wait()
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps
    assert min(gaps) >= REST_FACTOR * 10.0


def test_accounts_that_another_program_garbled_hide_no_other_number(
    server: Server, client: Client, poller: Poller, clock: ManualClock, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Whether a survey meets them, or a look at those that have labels."""
    client.queue("jobs", streams=1).write(b"x", shard_key="t")
    samples, right = QueueSamples(poller, ["jobs"], tenants=3), client.run
    assert shown(samples) == {"t": 1, OTHER: 0}

    def run(op: Any) -> Any:
        return int("x") if op.__name__ in ("named", "leaders") else right(op)

    monkeypatch.setattr(client, "run", run)
    for _ in range(3):
        clock.advance(SURVEY_INTERVAL + 1)
        assert shown(samples) == {}
        found = {each.instrument.text: each.value for each in samples.samples() if each.labels}
        assert (found["shardq_up"], found["shardq_queue_backlog"]) == (1, 1)
    assert len(caplog.records) == 3, caplog.messages
    monkeypatch.undo()
    clock.advance(SURVEY_INTERVAL + 1)
    assert shown(samples) == {"t": 1, OTHER: 0}
