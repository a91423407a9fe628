"""What users test their own code with: a clock that stands still, a client without a server."""

from __future__ import annotations

import sys
import time

import fakeredis
import pytest

from shardq import ConfigError, DurabilityUnknown, Empty, LeaseLost
from shardq.protocol.scripts import library
from shardq.testing import ManualClock, fake_client


def test_a_manual_clock_moves_when_told_to() -> None:
    clock = ManualClock(wall=100.0)
    assert (clock.monotonic(), clock.wall()) == (0.0, 100.0)
    clock.advance(2.5)
    assert (clock.monotonic(), clock.wall()) == (2.5, 102.5)
    with pytest.raises(ValueError, match="never goes back"):
        clock.advance(-1)


def test_leases_delays_and_deadlines_follow_the_manual_clock() -> None:
    clock = ManualClock()
    jobs = fake_client(clock=clock).queue("jobs", visibility_timeout=30)
    jobs.write("late", shard_key="t", delay=3600)
    jobs.write("stale", shard_key="t", deadline=60)
    first = jobs.read()
    clock.advance(30)
    again = jobs.read()
    assert (first.message_id, again.count) == (again.message_id, 2)
    with pytest.raises(LeaseLost):
        first.ack()
    clock.advance(3600)
    assert [each.payload for each in jobs.read_many(9)] == ["late"]
    assert jobs.stats().expired == 1


def test_whoever_waits_moves_the_manual_clock() -> None:
    clock, start = ManualClock(), time.monotonic()
    jobs = fake_client(clock=clock).queue("jobs", create=True)
    with pytest.raises(Empty):
        jobs.read(block=60)
    assert clock.monotonic() == pytest.approx(60)
    jobs.write("late", shard_key="t", delay=10)
    assert jobs.read(block=60).payload == "late"
    assert clock.monotonic() == pytest.approx(70, abs=1)
    assert time.monotonic() - start < 60


def test_without_a_manual_clock_waits_are_real() -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        time.sleep(seconds)

    jobs, block = fake_client(wait=wait).queue("jobs", create=True), 0.05
    while not waits:  # looking takes time, too: on a busy machine all of it
        block *= 2
        begun = time.monotonic()
        assert jobs.read_many(1, block=block) == []
        assert time.monotonic() - begun >= block
    assert 0 < sum(waits) <= block


def test_clients_of_one_fake_server_share_their_data() -> None:
    server = fakeredis.FakeServer()
    mine, theirs = fake_client(server=server), fake_client(server=server)
    mine.queue("jobs", create=True).write("shared", shard_key="t")
    assert theirs.queue("jobs", create=True).read().payload == "shared"
    assert fake_client().queue("jobs", create=True).len() == 0


def test_a_fake_server_keeps_no_text_of_a_single_call_and_loads_the_library_once() -> None:
    """The texts are those that fakeredis has for EVALSHA. It forgets none, so no text may be that of one call."""
    server = fakeredis.FakeServer()
    jobs, plain = fake_client(server=server).queue("jobs", create=True), fakeredis.FakeRedis(server=server)
    jobs.write(0, shard_key="t")
    keep = "if type(verb) == 'function' then redis.first[name] = verb end"
    plain.eval(f"redis.first = {{}} for name, verb in pairs(redis.shardq) do {keep} end", 0)
    texts, other = {*server.script_cache}, fake_client(server=server).queue("jobs", create=True)
    for number in range(100):
        jobs.write(number, shard_key="t")
        other.write(number, shard_key="t")
    assert {*server.script_cache} == texts
    assert sum(b"(function(redis)" in text for text in server.script_cache.values()) == 1
    count = "same = same + (redis.shardq[name] == verb and 1 or 0)"
    loops = f"local same = 0 for name, verb in pairs(redis.first) do {count} end return same"
    assert plain.eval(loops, 0) == len(library().verbs)


def test_a_fake_server_gives_scripts_their_own_arguments_only() -> None:
    """The time goes along behind them, and some scripts take all that there are."""
    jobs = fake_client().queue("jobs", create=True)
    jobs.write_many([(number, f"t-{number}") for number in range(5)])
    jobs.configure(max_deliveries=3)
    deliveries = jobs.read_many(5)
    for delivery in deliveries:
        delivery.extend(60)
    assert jobs.nack_many(deliveries[:2]) == jobs.ack_many(deliveries[2:]) == []
    assert (jobs.settings().max_deliveries, jobs.len()) == (3, 2)


def test_a_fake_has_no_replicas_and_says_so() -> None:
    jobs = fake_client(durability="replica(1)").queue("jobs", create=True)
    with pytest.raises(DurabilityUnknown):
        jobs.write(1, shard_key="t")
    assert jobs.len() == 1


def test_without_fakeredis_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fakeredis", None)
    with pytest.raises(ConfigError, match=r'pip install "fakeredis\[lua\]"'):
        fake_client()


def test_a_client_closed_is_closed() -> None:
    with fake_client() as client:
        assert client.queue("jobs", create=True).len() == 0


def test_a_fake_client_opens_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object) -> None:
        raise AssertionError("there is no server")

    monkeypatch.setattr("shardq.drivers.sync._connect", connect)
    queue = fake_client().queue("jobs", create=True)
    for number in range(3):  # from the second on, a call of the common case
        queue.write(number, shard_key=f"t{number}")
    delivery = queue.read()
    for _ in range(2):
        delivery = queue.read(ack=delivery)
    delivery.ack()
    assert queue.len() == 0
