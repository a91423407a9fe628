"""What becomes of messages: handled once, given back, rejected, lost, overdue."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import cast

import pytest

from shardq import Client, Delivery, Nack, Queue, Reject
from shardq.backoff import Constant
from shardq.model import DeliveryView
from shardq.ops.settle.settle import Settled, extend
from shardq.worker import traffic
from tests.servers import Server
from tests.waiting import eventually
from tests.worker import handlers
from tests.worker.conftest import Begin, PassTime
from tests.worker.running import Gate

AT_ONCE = Constant(0)


def test_each_message_is_handled_once_and_acked(begin: Begin, jobs: Queue) -> None:
    ids = jobs.write_many([(n, f"t{n % 7}") for n in range(1000)])
    seen: list[str] = []
    begin(lambda delivery: seen.append(delivery.message_id), concurrency=20)
    eventually(lambda: jobs.stats().acked == 1000)
    assert Counter(seen) == Counter(ids)
    late = jobs.write("late", shard_key="t")
    eventually(lambda: jobs.stats().acked == 1001)
    assert seen[-1] == late


def test_acks_and_reads_come_in_batches(begin: Begin, jobs: Queue, default_server: Server) -> None:
    jobs.write_many([(n, f"t{n % 7}") for n in range(2000)])
    default_server.run("CONFIG", "RESETSTAT")
    begin(lambda _: None, concurrency=200)
    looks = 0

    def done() -> bool:
        nonlocal looks
        looks += 1
        return jobs.stats().acked == 2000

    eventually(done)
    told = default_server.info("commandstats")
    calls = told["cmdstat_fcall"]["calls"] + told["cmdstat_fcall_ro"]["calls"] - looks
    assert calls < 500


def test_a_slot_that_is_about_to_read_takes_its_ack_along(
    begin: Begin, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No call is made for the ack alone, and it does not wait for the next message, or for the end of the read."""
    alone: list[object] = []
    monkeypatch.setattr(Queue, "ack_many", lambda *_, **__: alone.append(1))
    monkeypatch.setattr(traffic, "BLOCK", 60.0)
    jobs.write_many([(n, f"t{n % 7}") for n in range(20)])
    begin(lambda _: None, concurrency=1)
    eventually(lambda: jobs.stats().acked == 20)
    jobs.write("late", shard_key="t")
    eventually(lambda: jobs.stats().acked == 21)
    assert alone == []


def test_an_ack_that_a_read_took_along_too_late_is_told_and_the_worker_goes_on(
    begin: Begin, jobs: Queue, default_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    counts: list[int] = []

    def handle(delivery: DeliveryView) -> None:
        counts.append(delivery.count)
        if delivery.count == 1:  # by the server's clock it ended long ago
            default_server.run("ZADD", jobs.state.keys.leases, "XX", 1, delivery.received.token)
            default_server.run("HSET", jobs.state.keys.meta, "lease_at", 1)

    message_id = jobs.write("late", shard_key="t")
    begun = begin(handle, concurrency=1)
    eventually(lambda: jobs.stats().acked == 1)
    begun.stop()
    assert counts == [1, 2]
    assert caplog.text.count(f"1 leases had ended before their ack, the first of message {message_id}") == 1


def test_a_single_message_is_acked_without_waiting_for_more(begin: Begin, jobs: Queue) -> None:
    begin(lambda _: None, concurrency=3)
    took = []
    for n in range(5):
        begun = time.monotonic()
        jobs.write(n, shard_key="t")
        eventually(lambda n=n: jobs.stats().acked == n + 1)  # type: ignore[misc]
        took.append(time.monotonic() - begun)
    assert min(took) < 1


def test_nack_and_reject_do_what_they_say(begin: Begin, jobs: Queue) -> None:
    counts: list[tuple[str, int, str]] = []

    def handle(delivery: DeliveryView) -> None:
        counts.append((delivery.payload, delivery.count, delivery.last_error))
        if delivery.payload == "reject":
            raise Reject("not for us")
        if delivery.count == 1:
            raise Nack(0, error="busy")

    jobs.write_many([("reject", "a"), ("nack", "b")])
    begin(handle)
    eventually(lambda: (jobs.stats().acked, jobs.stats().dead) == (1, 1))
    assert sorted(counts) == [("nack", 1, ""), ("nack", 2, "busy"), ("reject", 1, "")]
    (letter,) = jobs.dead()
    assert (letter.reason, letter.count) == ("not for us", 1)


def test_whatever_a_handler_raises_the_worker_goes_on(
    begin: Begin, jobs: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SHARDQ_TEST_LOG", str(tmp_path / "log"))
    jobs.write_many([(each, each) for each in (*handlers.AWKWARD, "fine")])
    begun = begin(handlers.awkward, backoff=AT_ONCE)
    eventually(lambda: (jobs.stats().acked, jobs.stats().dead) == (1, len(handlers.AWKWARD)))
    begun.stop()
    assert begun.failure is None
    assert {letter.shard_key: (letter.reason, letter.last_error) for letter in jobs.dead()} == handlers.ENDS
    assert caplog.text.encode()  # a log can write all of it


def test_the_log_says_what_becomes_of_a_message(begin: Begin, jobs: Queue, caplog: pytest.LogCaptureFixture) -> None:
    def handle(delivery: DeliveryView) -> None:
        match delivery.payload:
            case "fails":
                raise ValueError("boom")
            case "rejects":
                raise Reject("not for us")
            case "nacks":
                raise Nack(0, "busy")

    ids: dict[str, str] = {jobs.write(each, shard_key="t"): each for each in ("fails", "rejects", "nacks")}
    begun = begin(handle, backoff=Constant(0.001))
    eventually(lambda: jobs.stats().dead == 3)
    begun.stop()
    told: dict[str, list[str]] = {each: [] for each in ids.values()}
    for record in caplog.records:
        begins, _, said = record.message.partition(": ")
        if (message_id := begins.rpartition(" message ")[2]) in ids:
            assert begins == f"queue 'jobs', tenant 't', message {message_id}"
            told[ids[message_id]].append(said)
    again = [f"failed, delivery {n}, again in 0.0 s: ValueError: boom" for n in (1, 2)]
    assert told == {
        "fails": [*again, "is a dead letter, after delivery 3: ValueError: boom"],
        "rejects": ["is a dead letter, after delivery 1: not for us"],
        "nacks": ["is a dead letter, after delivery 3: busy"],
    }


def test_the_log_of_a_redriven_message_counts_from_the_redrive(
    begin: Begin, jobs: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """Its deliveries before that are told, but it is not dead before it has had as many again."""

    def handle(_: DeliveryView) -> None:
        raise ValueError("boom")

    message_id = jobs.write("fails", shard_key="t")
    begun = begin(handle, backoff=Constant(0.001))
    (letter,) = eventually(jobs.dead)
    # The worker tells of it once Redis has said so: another thread could be faster with the next delivery.
    eventually(lambda: any("is a dead letter" in each.message for each in caplog.records))
    assert jobs.redrive([letter]) == 1
    eventually(lambda: jobs.stats().dead_lettered == 2)
    begun.stop()
    told = [each.message.partition(f" {message_id}: ")[2] for each in caplog.records]
    kinds = ["failed, delivery {}, again in 0.0 s", "failed, delivery {}, again in 0.0 s"]
    kinds = [*kinds, "is a dead letter, after delivery {}"] * 2
    expected = [f"{kind.format(at + 1)}: ValueError: boom" for at, kind in enumerate(kinds)]
    assert [each for each in told if each] == expected


def test_what_keeps_failing_is_a_dead_letter_with_its_error(
    begin: Begin, jobs: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(_: DeliveryView) -> None:
        raise ValueError("boom")

    jobs.write("secret payload", shard_key="t")
    begin(handle, backoff=AT_ONCE)
    (letter,) = eventually(jobs.dead)
    assert (letter.reason, letter.count) == ("max deliveries", 3)
    assert letter.last_error == "ValueError: boom"
    eventually(lambda: caplog.text.count(letter.message_id) >= 3)  # of the last time it is told when it is dead
    assert "secret" not in caplog.text


def test_the_text_of_an_error_is_the_handlers_own_also_where_it_quotes_the_payload(
    begin: Begin, jobs: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """As docs/security.md says: a program that does not want that raises errors of its own."""

    def handle(delivery: DeliveryView) -> None:
        {}[delivery.payload]

    jobs.write("alice@example.org", shard_key="t")
    begin(handle, backoff=AT_ONCE)
    (letter,) = eventually(jobs.dead)
    assert letter.last_error == "KeyError: 'alice@example.org'"
    eventually(lambda: "failed, delivery 1, again in 0.0 s: KeyError: 'alice@example.org'" in caplog.text)


class Sealed:
    """A codec that the worker does not know."""

    tag = "S"

    def encode(self, value: object) -> bytes:
        return str(value).encode()

    def decode(self, body: bytes) -> object:
        return body


def test_a_payload_that_cannot_be_decoded_ends_as_a_dead_letter_whole(begin: Begin, url: str, jobs: Queue) -> None:
    with Client.from_url(url, codec=Sealed()) as client:
        client.queue("jobs", create=True).write("the payload", shard_key="t")
    begin(lambda delivery: delivery.payload, backoff=AT_ONCE)
    (letter,) = eventually(jobs.dead)
    assert letter.body == b"the payload"
    assert letter.last_error.startswith("CodecError: ")
    assert "payload" not in letter.last_error


def test_a_lease_is_extended_while_the_handler_runs(begin: Begin, jobs: Queue, outlast: Callable[[], None]) -> None:
    gate = Gate()
    jobs.write("long", shard_key="t")
    begin(gate, concurrency=2)
    eventually(lambda: gate.inside)
    outlast()
    assert jobs.read_many(1) == []
    gate.open.set()
    eventually(lambda: jobs.stats().acked == 1)
    assert [each.count for each in gate.inside] == [1]
    assert not gate.told


def test_a_cancelled_message_stops_its_handler_and_is_not_acked(begin: Begin, jobs: Queue, pass_time: PassTime) -> None:
    gate = Gate()
    message_id = jobs.write("unwanted", shard_key="t")
    begin(gate)
    eventually(lambda: gate.inside)
    assert jobs.cancel(message_id) == "in flight"
    pass_time(1)  # far less than until the lease is extended
    eventually(lambda: gate.told)
    pass_time(30)  # to its end
    eventually(lambda: (jobs.stats().in_flight, jobs.stats().backlog, jobs.stats().cancelled) == (0, 0, 1))
    assert jobs.stats().acked == 0


def test_a_cancel_of_another_message_leaves_a_lease_as_its_handler_extended_it(begin: Begin, jobs: Queue) -> None:
    gate = Gate()
    jobs.write("long", shard_key="t")
    unwanted = jobs.write("unwanted", shard_key="t")
    begin(gate)
    eventually(lambda: len(gate.inside) == 2)
    (long,) = [each for each in gate.inside if each.message_id != unwanted]
    sent = jobs.state.clock.monotonic()
    assert jobs.client.run(extend(jobs.state, [long.received], 10_000)) == [Settled.OK]  # as its handler would do it
    cast("Delivery", long)._extended(sent, 10_000)
    assert jobs.cancel(unwanted) == "in flight"
    eventually(lambda: gate.told)
    assert long.remaining > 5_000
    status = jobs.status(long.message_id)
    assert status.until is not None
    assert status.until - status.time > 5_000
    gate.open.set()


def test_a_lost_lease_stops_the_handler_which_then_settles_nothing(
    begin: Begin, jobs: Queue, default_server: Server, pass_time: PassTime
) -> None:
    gate = Gate()
    jobs.write("stolen", shard_key="t")
    begin(gate)
    eventually(lambda: gate.inside)
    (token,) = [each for each in default_server.run("ZRANGE", jobs.state.keys.leases, 0, -1) if each]
    default_server.run("ZADD", jobs.state.keys.leases, "XX", 1, token)  # by the server's clock it ended long ago
    default_server.run("HSET", jobs.state.keys.meta, "lease_at", 1)
    jobs.write("wakes the worker", shard_key="u")
    eventually(lambda: len(gate.inside) == 3)  # delivered again, here
    pass_time(12)  # to when the leases are extended
    eventually(lambda: gate.told)
    assert jobs.stats().acked == 0
    gate.open.set()
    eventually(lambda: jobs.stats().acked == 2)
    stolen, *others = gate.inside
    assert gate.told == [stolen]
    assert sorted(each.payload for each in gate.done) == ["stolen", "wakes the worker"]
    assert {id(each) for each in gate.done} == {id(each) for each in others}


def test_a_handler_that_takes_too_long_has_failed(begin: Begin, jobs: Queue) -> None:
    gate = Gate()
    jobs.write("endless", shard_key="t")
    begin(gate, time_limit=0.2, backoff=AT_ONCE, concurrency=1)
    (letter,) = eventually(jobs.dead)
    assert letter.last_error == "TimeLimit: it ran for more than 0.2 s"
    assert [each.count for each in gate.inside] == [1, 2, 3]
    eventually(lambda: len(gate.told) == 3)


@pytest.mark.parametrize(("settings", "held"), [({}, 2), ({"read_ahead": 3}, 5)])
def test_no_more_is_taken_than_can_start_unless_asked_for(
    begin: Begin, jobs: Queue, settings: dict[str, int], held: int, outlast: Callable[[], None]
) -> None:
    gate = Gate()
    gate.open.set()
    jobs.write("short", shard_key="t")
    begin(gate, concurrency=2, **settings)
    eventually(lambda: jobs.stats().acked == 1)
    gate.open.clear()
    gate.inside.clear()
    jobs.write_many([(n, f"t{n}") for n in range(20)])
    eventually(lambda: len(gate.inside) == 2 and jobs.stats().in_flight == held)
    outlast()  # what waits here keeps its lease, too
    assert (jobs.stats().in_flight, len(gate.inside)) == (held, 2)
    gate.open.set()
    eventually(lambda: jobs.stats().acked == 21)
    assert {each.count for each in gate.inside} == {1}


class HangsAfter(Gate):
    """Its first jobs take 20 ms; the later ones wait for the gate."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self.first, self.numbers = first, count()

    def __call__(self, delivery: DeliveryView) -> None:
        """Run in a thread."""
        if next(self.numbers) < self.first:
            time.sleep(0.02)
        else:
            super().__call__(delivery)

    async def asynchronous(self, delivery: DeliveryView) -> None:
        """Run in a task."""
        if next(self.numbers) < self.first:
            await asyncio.sleep(0.02)
        else:
            await super().asynchronous(delivery)


def test_what_was_read_ahead_goes_to_others_uncounted_when_handlers_hang(begin: Begin, jobs: Queue) -> None:
    gate = HangsAfter(60)
    jobs.write_many([(n, f"t{n % 10}") for n in range(120)])
    begun = begin(gate, concurrency=12)
    eventually(lambda: len(gate.inside) == 12)
    others: list[Delivery] = []

    def all_are_taken() -> bool:
        others.extend(jobs.read_many(48))
        return len(others) == 48

    eventually(all_are_taken)
    assert begun.worker
    assert begun.worker.tally["give back"] > 0
    assert {each.count for each in others} == {1}
    jobs.ack_many(others)
    gate.open.set()
    eventually(lambda: jobs.stats().acked == 120)


def _raises(count: int, _: object) -> float:
    raise RuntimeError(f"a policy with a mistake\nat {count}")


def _exits(count: int, _: object) -> float:
    raise SystemExit(count)


def _nonsense(result: object) -> Callable[[int, object], object]:
    return lambda *_: result


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (_raises, "RuntimeError: a policy with a mistake at 1"),
        (_exits, "SystemExit: 1"),
        (_nonsense(None), "not None"),
        (_nonsense("soon"), "not 'soon'"),
        (_nonsense(-1.0), "not -1.0"),
        (_nonsense(float("nan")), "not nan"),
    ],
)
def test_a_backoff_that_fails_is_told_in_a_line_and_the_message_tried_again(
    begin: Begin, jobs: Queue, caplog: pytest.LogCaptureFixture, broken: Callable[[int, object], object], why: str
) -> None:
    def handle(delivery: DeliveryView) -> None:
        if delivery.payload == "bad":
            raise ValueError("boom")

    jobs.write("bad", shard_key="t")
    begin(handle, backoff=broken)
    eventually(lambda: jobs.stats().delayed == 1)
    jobs.write("good", shard_key="t")
    eventually(lambda: jobs.stats().acked >= 1)
    lines = [record for record in caplog.records if "backoff" in record.getMessage()]
    first = lines[0].getMessage()
    assert first.startswith("the worker's backoff failed after delivery 1, and the default one is used: ")
    assert first.endswith(why)
    assert not any(record.exc_info or "\n" in record.getMessage() for record in lines)
    assert not any("policy with a mistake" in (record.exc_text or "") for record in caplog.records)


def test_whoever_is_told_of_dead_letters_is_told_of_each_once(
    begin: Begin, jobs: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """Of one that was rejected, and of one that failed for the last time; what the function raises harms nobody."""
    jobs.configure(max_deliveries=2)
    told: list[tuple[str, str, bool, int]] = []

    def on_dead(delivery: DeliveryView, reason: str) -> None:
        told.append((delivery.message_id, reason, delivery.dead, delivery.count))
        raise ValueError("told")

    def handle(delivery: DeliveryView) -> None:
        if delivery.payload == "poison":
            raise Reject("no such model")
        if delivery.payload == "broken":
            raise OSError("disk")

    ids = {payload: jobs.write(payload, shard_key="acct-7") for payload in ("fine", "poison", "broken")}
    begun = begin(handle, backoff=AT_ONCE, on_dead=on_dead)
    eventually(lambda: len(told) == 2 and jobs.stats().acked == 1)
    begun.stop()
    assert {(each[0], each[2], each[3]) for each in told} == {(ids["poison"], True, 1), (ids["broken"], True, 2)}
    assert {each[0]: each[1] for each in told}[ids["poison"]] == "no such model"
    lines = [each.getMessage() for each in caplog.records if "is a dead letter" in each.getMessage()]
    assert sorted(lines) == sorted(
        f"queue {jobs.name!r}, tenant 'acct-7', message {message_id}: is a dead letter, "
        f"after delivery {count}: {reason}"
        for message_id, reason, _, count in told
    )
    assert sum("on_dead raised an error" in each.getMessage() for each in caplog.records) == 2
