"""The samples of queues: each number is what `stats` says, and one that Redis does not say is left out."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from shardq import BackendError, Client, __version__
from shardq.exporter import queues
from shardq.exporter import server as module
from shardq.exporter.poller import FRESH_SECONDS, SLOW_FRESH_SECONDS, Past, Poller
from shardq.exporter.queues import OF_QUEUES, QueueSamples, build
from shardq.exporter.text import text_of
from shardq.model.outlook import Outlook
from shardq.telemetry.instruments import (
    BUILD,
    DRAIN_TIME,
    INSTRUMENTS,
    MEMORY_RATIO,
    OUT_OF_MEMORY,
    POLL_AGE,
    QUEUE,
    QUEUE_SLOTS,
    UP,
    WORKERS,
)
from shardq.testing import ManualClock
from tests.acl import Users
from tests.exporter.test_text import families
from tests.servers import Server
from tests.verbs import SETTINGS, furnish

OF_PAST = {WORKERS.text, QUEUE_SLOTS.text, DRAIN_TIME.text}


def numbers(samples: QueueSamples, queue: str = "jobs") -> dict[str, float]:
    """The numbers of a queue by their names, after they were text."""
    found = families(text_of(samples.samples()))
    return {
        each.name: each.value for family in found.values() for each in family.samples if each.labels == {"queue": queue}
    }


def server_numbers(samples: QueueSamples) -> dict[str, Any]:
    return {each.instrument.text: each.value for each in samples.samples() if not each.labels}


def test_each_number_is_what_stats_say(client: Client, poller: Poller) -> None:
    jobs = client.queue("jobs", **SETTINGS)
    jobs.declare()
    furnish(jobs)
    jobs.pause()
    found = numbers(QueueSamples(poller, ["jobs"]))
    stats = poller.stats("jobs")
    assert found.pop(UP.text) == 1
    assert 0 <= found.pop(POLL_AGE.text) < FRESH_SECONDS
    fields = {each.text: each.name.rpartition(".")[2] for each in OF_QUEUES}
    assert {fields.get(name, name) for name in found} == set(fields.values()) - {"pause_left"}  # it has no end
    assert found["shardq_queue_paused"] == 1
    assert found["shardq_queue_drain_time_seconds"] == math.inf
    assert found["shardq_queue_oldest_age_seconds"] == pytest.approx(stats.oldest_age or 0.0)
    for name in ("paused", "drain_time_seconds", "oldest_age_seconds", "workers", "slots"):
        del found[f"shardq_queue_{name}"]
    assert {fields[name]: value for name, value in found.items()} == {
        fields[name]: getattr(stats, fields[name]) for name in found
    }
    assert sum(found.values()) > 5  # most are there for a reason


def test_all_instruments_of_queues_are_told() -> None:
    told = {each.name for each in OF_QUEUES}
    assert {each.name for each in INSTRUMENTS if each.name.startswith("shardq.queue.")} == told


def test_all_queues_are_told_as_they_come_and_go(client: Client, poller: Poller, clock: ManualClock) -> None:
    samples = QueueSamples(poller)
    assert [sample.instrument.text for sample in samples.samples()][:1] == [BUILD.text]
    for name in ("jobs", "mails"):
        client.queue(name, streams=1).declare()
        clock.advance(SLOW_FRESH_SECONDS)
    assert (numbers(samples)[UP.text], numbers(samples, "mails")[UP.text]) == (1, 1)
    client.queue("mails").delete()
    clock.advance(SLOW_FRESH_SECONDS)
    assert numbers(samples, "mails") == {}
    assert numbers(QueueSamples(poller, ["mails"]), "mails") == {}
    samples.close()


def test_queues_beyond_the_bound_are_not_told_and_that_is_said_once(
    poller: Poller, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(queues, "MAX_QUEUES", 2)
    monkeypatch.setattr(poller, "queues", lambda: ["a", "b", "c"])
    samples = QueueSamples(poller)
    assert [list(samples.names()) for _ in range(3)] == [["a", "b"]] * 3
    assert [each.message for each in caplog.records] == ["there are 3 queues, and only the first 2 are exported"]


def test_a_queue_that_is_not_made_yet_is_left_out_and_redis_is_up(
    poller: Poller, caplog: pytest.LogCaptureFixture
) -> None:
    for samples in (QueueSamples(poller, ["nothing"]), QueueSamples(poller)):
        assert numbers(samples, "nothing") == {}
        assert server_numbers(samples)[UP.text] == 1
    assert caplog.messages == ["queue 'nothing' is left out: there is no queue of this name"]


def test_a_queue_that_this_user_may_not_read_is_left_out_and_that_is_said_once(
    server: Server, client: Client, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("jobs", "mails"):
        client.queue(name, streams=1).declare()
    users = Users(server)
    try:
        with Client.from_url(users.url("observer")) as allowed:
            poller = Poller(allowed, clock=clock)
            every, named = QueueSamples(poller), QueueSamples(poller, ["mails"])
            for _ in range(3):
                assert (numbers(every)[UP.text], numbers(every, "mails")) == (1, {})
                clock.advance(SLOW_FRESH_SECONDS)
            [line] = caplog.messages
            assert line.startswith("queue 'mails' is left out: this user of Redis may not read queue 'mails' (NOPERM")
            assert line.endswith("role observer, and `shardq server acl observer mails` prints the rights")
            assert numbers(named, "mails") == {UP.text: 0}  # who names it wants to know
            assert poller.is_ready()
            every.close()
        with Client.from_url(users.url("autoscaler")) as allowed:
            poller = Poller(allowed, clock=clock)
            assert numbers(QueueSamples(poller, ["jobs"]))[UP.text] == 1
            with pytest.raises(BackendError, match=r"may not list the queues .NOPERM.*-q QUEUE.*role observer"):
                QueueSamples(poller).samples()
    finally:
        users.remove()


def test_what_redis_does_not_say_is_left_out(
    server: Server,
    client: Client,
    poller: Poller,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Callable[..., object],
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.3)
    poller.server.patience = 0.3
    some, every = QueueSamples(poller, ["jobs"]), QueueSamples(poller)
    client.queue("jobs", streams=1).write(b"x", shard_key="t")
    assert numbers(some)["shardq_queue_backlog"] == numbers(every)["shardq_queue_backlog"] == 1
    server.kill9()
    clock.advance(60)
    for samples in (some, every):
        assert numbers(samples) == {UP.text: 0, POLL_AGE.text: 60}
        assert server_numbers(samples) == {UP.text: 0}
    with pytest.raises(BackendError):  # nobody ever knew which queues there are
        QueueSamples(Poller(client, clock=clock)).samples()
    server.start()
    client.queue("jobs", streams=1).declare()

    def is_back() -> bool:
        clock.advance(SLOW_FRESH_SECONDS)
        return numbers(some)[UP.text] == 1

    eventually(is_back)
    assert numbers(some)[POLL_AGE.text] == 0


def test_memory_is_told_where_it_is_bounded(server: Server, client: Client, poller: Poller, clock: ManualClock) -> None:
    client.queue("jobs", streams=1).declare()
    samples = QueueSamples(poller, ["jobs"])
    before = server_numbers(samples)
    assert MEMORY_RATIO.text not in before
    server.run("CONFIG", "SET", "maxmemory", int(server.info("memory")["used_memory"]) // 2)
    with pytest.raises(BackendError):
        client.queue("jobs").write(b"x" * 1000, shard_key="t")
    clock.advance(SLOW_FRESH_SECONDS)
    after = server_numbers(samples)
    assert after[MEMORY_RATIO.text] > 0.9
    assert after[OUT_OF_MEMORY.text] > before[OUT_OF_MEMORY.text]


def test_who_reads_and_tells_nothing_of_itself_is_one_worker(
    client: Client, poller: Poller, clock: ManualClock
) -> None:
    jobs = client.queue("jobs", streams=1)
    jobs.write(b"x", shard_key="t")
    samples = QueueSamples(poller, ["jobs"])
    assert numbers(samples)[WORKERS.text] == 0
    jobs.read()
    clock.advance(SLOW_FRESH_SECONDS)
    assert numbers(samples)[WORKERS.text] == 1


@pytest.mark.parametrize(
    ("drains", "seconds", "shown"),
    [
        ("empty", 0.0, 0.0),
        ("drains", 12.5, 12.5),
        ("grows", None, math.inf),
        ("stands", None, math.inf),
        ("unknown", None, None),
    ],
)
def test_what_never_drains_takes_forever(
    client: Client,
    poller: Poller,
    monkeypatch: pytest.MonkeyPatch,
    drains: Any,
    seconds: float | None,
    shown: float | None,
) -> None:
    client.queue("jobs", streams=1).declare()
    outlook = poller.outlook("jobs")
    assert outlook is not None
    made: Outlook = replace(outlook, drains=drains, drain_seconds=seconds)
    monkeypatch.setattr(poller, "past", lambda _: Past(made, ()))
    assert numbers(QueueSamples(poller, ["jobs"])).get(DRAIN_TIME.text) == shown


def test_what_cannot_be_reckoned_is_left_out(client: Client, poller: Poller, monkeypatch: pytest.MonkeyPatch) -> None:
    client.queue("jobs", streams=1).declare()
    monkeypatch.setattr(poller, "past", lambda _: None)
    found = numbers(QueueSamples(poller, ["jobs"]))
    assert OF_PAST & found.keys() == set()
    assert found["shardq_queue_backlog"] == 0


def test_one_that_does_not_answer_in_time_is_not_up(
    client: Client, poller: Poller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "PATIENCE", 0.5)
    for name in ("jobs", "mails"):
        client.queue(name, streams=1).declare()
    gate, right = threading.Event(), poller.stats

    def slow(queue: str, **how: Any) -> Any:
        if queue == "mails":
            gate.wait(60)
        return right(queue, **how)

    monkeypatch.setattr(poller, "stats", slow)
    samples = QueueSamples(poller, ["jobs", "mails"])
    found = samples.samples()
    assert {sample.labels: sample.value for sample in found if sample.instrument is UP} == {
        (): 1,
        ((QUEUE, "jobs"),): 1,
        ((QUEUE, "mails"),): 0,
    }
    gate.set()
    samples.close()


def test_the_build_is_told() -> None:
    assert text_of([build()]).splitlines()[-1] == f'shardq_build_info{{version="{__version__}"}} 1'


@pytest.mark.parametrize("text", ["x", "1e999", ""])
def test_a_queue_that_another_program_garbled_hides_no_other(
    server: Server, client: Client, poller: Poller, caplog: pytest.LogCaptureFixture, clock: ManualClock, text: str
) -> None:
    for name in ("bad", "good"):
        client.queue(name, streams=1).write(b"x", shard_key="t")
    server.run("HSET", "shardq:{bad}:meta", "failed", text)
    samples = QueueSamples(poller)
    for _ in range(3):
        found = numbers(samples, "good")
        assert (found[UP.text], found["shardq_queue_backlog"]) == (1, 1)
        assert numbers(samples, "bad") == {UP.text: 0}
        clock.advance(FRESH_SECONDS)
    assert [each.message for each in caplog.records if "cannot be read" in each.message] == [
        each.message for each in caplog.records
    ]
    assert len(caplog.records) == 1
    samples.close()


def test_what_nobody_expects_of_a_queue_hides_no_other(
    client: Client, poller: Poller, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("bad", "good"):
        client.queue(name, streams=1).write(b"x", shard_key="t")
    right, nothing = poller.past, dict[str, Past]()

    def past(name: str) -> Past | None:
        return right(name) if name == "good" else nothing[name]

    monkeypatch.setattr(poller, "past", past)
    samples = QueueSamples(poller)
    for _ in range(3):
        found = numbers(samples, "good")
        assert (found[UP.text], found["shardq_queue_backlog"]) == (1, 1)
        assert numbers(samples, "bad") == {UP.text: 0}
    assert caplog.messages == ["the numbers of queue 'bad' cannot be read"]
    samples.close()


def test_a_counter_below_0_is_left_out(client: Client, poller: Poller, monkeypatch: pytest.MonkeyPatch) -> None:
    client.queue("jobs", streams=1).write(b"x", shard_key="t")
    garbled = replace(poller.stats("jobs"), acked=-5)
    monkeypatch.setattr(poller, "stats", lambda _: garbled)
    found = numbers(QueueSamples(poller, ["jobs"]))
    assert "shardq_queue_acked_total" not in found
    assert (found[UP.text], found["shardq_queue_backlog"]) == (1, 1)
