"""What KEDA asks a scaler: all of its calls, made by a client of its own definition, on a real process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any

import grpc
import pytest

from shardq import AsyncClient, Client, Queue
from shardq.exporter import keda as keda_calls
from shardq.exporter.kedaserver import KedaServer
from shardq.exporter.poller import Poller
from tests.exporter.scaling import Keda, ScalerProcess, counted, refused, scaler
from tests.servers import Server
from tests.stalls import RunTime, threads
from tests.waiting import eventually


@pytest.fixture(scope="module")
def running(default_server: Server) -> Iterator[ScalerProcess]:
    with scaler(default_server.url) as started:
        yield started


@pytest.fixture
def keda(running: ScalerProcess) -> Iterator[Keda]:
    with Keda(running.grpc) as client:
        yield client


@pytest.fixture
def queue(server: Server, queue_name: str) -> Iterator[Queue]:
    with Client.from_url(server.url) as client:
        made = client.queue(queue_name.lower(), streams=4)
        made.read_many(1)
        yield made


class Stream:
    """Answers of a call that stays open, as they come, with the time of each."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.seen: list[tuple[float, Any]] = []
        self.error: grpc.RpcError | None = None
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def _follow(self) -> None:
        try:
            for each in self.call:
                self.seen.append((time.monotonic(), each))
        except grpc.RpcError as error:
            self.error = error

    def has_told(self, number: int) -> bool:
        return len(self.seen) >= number

    @property
    def results(self) -> list[bool]:
        return [each.result for _, each in self.seen]

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.call.cancel()
        self.thread.join()


def test_a_queue_is_active_from_its_first_message_until_the_last_is_settled(keda: Keda, queue: Queue) -> None:
    known = {"queue": queue.name, "target": "5"}
    assert not keda.is_active(**known)
    queue.write_many([(number, "acme") for number in range(12)])
    eventually(lambda: keda.is_active(**known))
    assert keda.value(**known).metricValueFloat == 12
    deliveries = queue.read_many(12)
    assert keda.is_active(**known)
    for each in deliveries:
        each.ack()
    eventually(lambda: not keda.is_active(**known))
    value = keda.value(**known)
    assert (value.metricValue, value.metricValueFloat) == (0, 0)


@pytest.mark.parametrize(("target", "workers"), [("5", 3), ("0.5", 24), ("2.5", 5), ("100", 1)])
def test_the_metric_has_both_forms_in_which_as_many_workers_are_wanted(
    keda: Keda, queue: Queue, target: str, workers: int
) -> None:
    """KEDA takes the float where it is above 0, else the whole number."""
    queue.write_many([(number, "acme") for number in range(12)])
    known = {"queue": queue.name, "metric": "load", "target": target}
    spec = keda.spec(**known)
    value = eventually(lambda: (found := keda.value(spec.metricName, **known)).metricValueFloat and found)
    assert spec.targetSizeFloat == float(target)
    assert value.metricValueFloat == 12
    assert -(-value.metricValueFloat // spec.targetSizeFloat) == workers
    assert -(-value.metricValue // spec.targetSize) == workers
    assert value.metricName == spec.metricName


@pytest.mark.parametrize("metric", ["load", "age", "drain"])
def test_what_is_due_soon_wants_one_worker_in_time(keda: Keda, queue: Queue, metric: str) -> None:
    queue.write("later", shard_key="acme", delay=40)
    known = {"queue": queue.name, "metric": metric, "target": "10"}
    assert eventually(lambda: keda.is_active(**known, lead="60"))
    assert not keda.is_active(**known, lead="5")
    assert 0 < keda.value(**known, lead="60").metricValueFloat <= 10
    assert keda.value(**known, lead="5").metricValueFloat == 0


def test_what_waits_for_a_pause_starts_nobody(keda: Keda, queue: Queue) -> None:
    queue.write_many([(number, "acme") for number in range(3)])
    queue.pause()
    known = {"queue": queue.name, "target": "1"}
    eventually(lambda: not keda.is_active(**known))
    assert keda.value(**known).metricValueFloat == 0
    queue.resume()
    eventually(lambda: keda.is_active(**known))


# Calls that stay open.


def test_a_stream_tells_at_once_what_is_so_and_within_a_second_of_a_write(
    keda: Keda, queue: Queue, running: ScalerProcess
) -> None:
    """At any moment between two looks of the scaler; without the time in which either waits for a processor."""
    ref = keda.ref({"queue": queue.name, "target": "5"})
    with Stream(keda.call("StreamIsActive", ref)) as stream:
        eventually(lambda: stream.results == [False])
        for number in range(4):
            threading.Event().wait(0.3 * number)
            taken = RunTime(lambda: threads([os.getpid(), running.process.pid]))
            queue.write("work", shard_key="acme")
            eventually(partial(stream.has_told, 2 * number + 2))
            taken.look()
            assert taken.until(stream.seen[-1][0]) < 1.0
            queue.read().ack()
            eventually(partial(stream.has_told, 2 * number + 3))
        assert stream.results == [False, *[True, False] * 4]


def test_many_streams_of_a_queue_have_one_watcher_and_go_with_their_clients(
    keda: Keda, queue: Queue, server: Server, running: ScalerProcess
) -> None:
    def waits() -> int:
        told: bytes = server.run("CLIENT", "LIST", "TYPE", "NORMAL")
        return len([each for each in told.splitlines() if b" cmd=xread " in each and b" flags=b" in each])

    eventually(lambda: waits() == 0)
    streams = [Stream(keda.call("StreamIsActive", keda.ref({"queue": queue.name, "target": "5"}))) for _ in range(30)]
    eventually(lambda: all(each.results == [False] for each in streams))
    eventually(lambda: waits() == 1)
    queue.write("work", shard_key="acme")
    eventually(lambda: all(each.results == [False, True] for each in streams))
    queue.read().ack()
    eventually(lambda: waits() == 1)
    for each in streams:
        with each:
            pass
    eventually(lambda: waits() == 0)


@pytest.mark.runs_in("test-all")
def test_a_stream_is_told_of_what_is_due_within_its_own_lead(keda: Keda, queue: Queue) -> None:
    long, short = (
        Stream(keda.call("StreamIsActive", keda.ref({"queue": queue.name, "target": "5", "lead": lead})))
        for lead in ("600", "0")
    )
    with long, short:
        eventually(lambda: short.results == long.results == [False])
        queue.write("later", shard_key="acme", delay=8)
        eventually(lambda: long.results == short.results == [False, True])
        assert short.seen[-1][0] - long.seen[-1][0] > 1


def test_the_spec_is_told_at_once_and_is_that_of_get_metric_spec(keda: Keda, queue: Queue) -> None:
    known = {"queue": queue.name, "metric": "age", "target": "2.5"}
    with Stream(keda.call("StreamMetricSpec", keda.ref(known))) as stream:
        ((_, told),) = eventually(lambda: stream.seen)
        assert list(told.metricSpecs) == [keda.spec(**known)]
        assert told.metricSpecs[0].targetSizeFloat == 2.5
        assert told.metricSpecs[0].targetSize == 3


# What is refused.


def test_an_unknown_queue_is_not_found_and_not_empty(keda: Keda) -> None:
    known = {"queue": "no-such-queue", "target": "5"}
    for work in (
        lambda: keda.is_active(**known),
        lambda: keda.value(**known),
        lambda: list(keda.call("StreamIsActive", keda.ref(known))),
    ):
        code, text = refused(work)
        assert (code, "no-such-queue" in text) == ("NOT_FOUND", True)
    assert keda.spec(**known).metricName == "shardq-no-such-queue-load"  # it may come later


@pytest.mark.parametrize(
    ("metadata", "key"),
    [
        ({}, "queue"),
        ({"queue": "jobs"}, "target"),
        ({"queue": "jo bs", "target": "1"}, "queue"),
        ({"queue": "jobs", "target": "0"}, "target"),
        ({"queue": "jobs", "target": "nan"}, "target"),
        ({"queue": "jobs", "target": "1", "metric": "xlen"}, "metric"),
        ({"queue": "jobs", "target": "1", "lead": "-1"}, "lead"),
        ({"queue": "jobs", "target": "1", "activation": "1e400"}, "activation"),
        ({"queue": "jobs", "target": "1", "Metric": "age"}, "'Metric'"),
    ],
)
def test_what_is_wrong_in_metadata_is_said_by_its_key(keda: Keda, metadata: dict[str, str], key: str) -> None:
    messages, ref = keda.messages, keda.ref(metadata)
    asked = {
        "IsActive": ref,
        "StreamIsActive": ref,
        "GetMetricSpec": ref,
        "GetMetrics": messages["GetMetricsRequest"](scaledObjectRef=ref),
        "StreamMetricSpec": ref,
    }
    for name, request in asked.items():
        code, text = refused(lambda name=name, request=request: [*iter(keda.call(name, request))])
        assert (code, text.startswith(f"metadata key {key}")) == ("INVALID_ARGUMENT", True), text
        assert "\n" not in text


def test_a_metric_is_asked_for_by_its_name_also_by_one_that_another_version_gave_it(keda: Keda, queue: Queue) -> None:
    queue.write("work", shard_key="acme")
    known = {"queue": queue.name, "metric": "load", "target": "1"}

    def is_one(name: str) -> bool:
        return bool(keda.value(name, **known).metricValueFloat == 1)

    for name in ("", keda.spec(**known).metricName, "shardq-as-it-was-called-before-load"):
        assert eventually(partial(is_one, name))
    for name in ("shardq-jobs-age", "s0-shardq-jobs-load", "load", "shardq-" + "x" * 300 + "-load", "shardq-\n-load"):
        code, text = refused(lambda name=name: keda.value(name, **known))
        assert (code, keda.spec(**known).metricName in text) == ("INVALID_ARGUMENT", True)


HOSTILE = ["a\nb", 'a"b', "a\\b", "a\0b", "é", "../../etc\n", "{jobs}", "x" * 10_000, "", "*"]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_metadata_do_nothing(keda: Keda, queue: Queue, text: str) -> None:
    for metadata in ({"queue": text, "target": "1"}, {"queue": queue.name, "target": text}):
        code, told = refused(lambda metadata=metadata: keda.is_active(**metadata))
        assert code == "INVALID_ARGUMENT"
        assert len(told) < 300
        assert told.isprintable()
    assert not keda.is_active(**{"queue": queue.name, "target": "1", text: text})


def test_what_is_too_large_or_no_message_is_refused(keda: Keda, queue: Queue) -> None:
    large = {"queue": queue.name, "target": "1", **{f"key{number}": "x" * 10_000 for number in range(10)}}
    assert refused(lambda: keda.is_active(**large))[0] == "RESOURCE_EXHAUSTED"
    many = {"queue": queue.name, "target": "1", **{f"key{number}": "x" for number in range(100)}}
    assert refused(lambda: keda.is_active(**many))[0] == "INVALID_ARGUMENT"
    for name in ("IsActive", "GetMetricSpec", "GetMetrics"):
        call = keda.channel.unary_unary(f"/externalscaler.ExternalScaler/{name}")
        assert refused(lambda call=call: call(b"\xff\xff\xff", timeout=60))[0] == "INVALID_ARGUMENT"
    assert not keda.is_active(queue=queue.name, target="1")


# However many ask, and whatever Redis does.


@pytest.mark.runs_in("test-all")
def test_a_hundred_who_ask_ten_times_a_second_cost_one_look_a_second(
    running: ScalerProcess, server: Server, queue: Queue
) -> None:
    """Over both ways, while somebody listens and something is written."""
    queue.write("work", shard_key="acme")
    known = {"queue": queue.name, "target": "5"}
    over = threading.Event()
    asked = []

    def ask(number: int) -> None:
        with Keda(running.grpc) as client:
            while not over.wait(0.1):
                if number % 2:
                    asked.append(client.is_active(**known))
                else:
                    asked.append(running.numbers(f"{queue.name}?metric=load")["active"])

    running.numbers(queue.name)  # the first look takes two calls: only then it is known which streams there are
    with (
        Keda(running.grpc) as client,
        Stream(client.call("StreamIsActive", client.ref(known))),
        counted(server) as calls,
    ):
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(100)]
        for each in threads:
            each.start()
        eventually(lambda: len(calls) >= 8)
        over.set()
        for each in threads:
            each.join()
    times = [at for at, key in calls if queue.name in key]
    assert all(later - earlier >= 0.95 for earlier, later in pairwise(times))
    assert len(asked) > 500
    assert all(asked)


def test_while_redis_is_away_nobody_hears_of_0_and_then_all_goes_on(server: Server, queue: Queue) -> None:
    queue.write("work", shard_key="acme")
    known = {"queue": queue.name, "target": "5"}
    with (
        scaler(server.url) as started,
        Keda(started.grpc) as client,
        Stream(client.call("StreamIsActive", client.ref(known))) as stream,
    ):
        eventually(lambda: stream.results == [True])
        server.pause()
        try:
            eventually(lambda: started.get(f"/queues/{queue.name}")[0] == 503)
            for work in (
                lambda: client.is_active(**known),
                lambda: client.value(**known),
                lambda: list(client.call("StreamIsActive", client.ref(known))),
            ):
                assert refused(work)[0] == "UNAVAILABLE"
            assert client.spec(**known).targetSizeFloat == 5
            assert started.get("/healthz")[0] == 200
        finally:
            server.resume()
        eventually(lambda: started.get(f"/queues/{queue.name}")[0] == 200)
        assert client.is_active(**known)
        assert all(stream.results)
        queue.read().ack()
        eventually(lambda: stream.results[-1:] == [False])


@pytest.mark.runs_in("test-all")
def test_streams_end_in_order_with_the_scaler(server: Server, queue: Queue) -> None:
    """KEDA calls again within two seconds then, and after longer and longer where a call failed."""
    known = {"queue": queue.name, "target": "5"}
    with Keda("unix:/nowhere") as nobody, suppress(grpc.RpcError):
        nobody.call("IsActive", nobody.ref(known), timeout=0.1)
    with scaler(server.url) as started:
        client = Keda(started.grpc)
        streams = [Stream(client.call(name, client.ref(known))) for name in ("StreamIsActive", "StreamMetricSpec")]
        eventually(lambda: all(each.seen for each in streams))
    for each in streams:
        each.thread.join(60)
        assert not each.thread.is_alive()
        assert each.error is None
    client.channel.close()


def test_calls_that_stay_open_are_bounded_and_make_room_when_they_end(
    server: Server, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keda_calls, "MAX_STREAMS", 3)
    monkeypatch.setattr(keda_calls, "MAX_WATCHED", 1)
    with Client.from_url(server.url) as client:
        client.queue("other", streams=2).read_many(1)
        serving = KedaServer("127.0.0.1:0", Poller(client), lambda: AsyncClient.from_url(server.url))
        serving.open()
        try:
            with Keda(serving.address) as asker:
                ref, other = (asker.ref({"queue": name, "target": "1"}) for name in (queue.name, "other"))
                with Stream(asker.call("StreamIsActive", ref)) as first, Stream(asker.call("StreamMetricSpec", ref)):
                    eventually(lambda: first.results == [False])
                    told = refused(lambda: list(asker.call("StreamIsActive", other)))
                    assert told == ("RESOURCE_EXHAUSTED", "1 queues are watched: use the type external, which polls")
                    with Stream(asker.call("StreamIsActive", ref)) as third:
                        eventually(lambda: third.results == [False])
                        told = refused(lambda: list(asker.call("StreamIsActive", ref)))
                        assert told == ("RESOURCE_EXHAUSTED", "3 calls stay open already")
                        assert not asker.is_active(queue=queue.name, target="1")
                eventually(partial(is_let_in, asker, other))
        finally:
            serving.close()


def test_what_nobody_expects_ends_no_connection(
    server: Server, queue: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is an error of the scaler, which its log has; what was said in it is nobody's business."""
    with Client.from_url(server.url) as client:
        poller = Poller(client)
        serving = KedaServer("127.0.0.1:0", poller, lambda: AsyncClient.from_url(server.url))
        serving.open()
        try:
            with Keda(serving.address) as asker, monkeypatch.context() as patched:
                known = {"queue": queue.name, "target": "1"}
                with Stream(asker.call("StreamMetricSpec", asker.ref(known))) as stream:
                    eventually(lambda: stream.has_told(1))
                    patched.setattr(poller, "stats", lambda *_, **__: dict[str, int]()["secret"])
                    for work in (lambda: asker.is_active(**known), lambda: asker.value(**known)):
                        assert refused(work) == ("INTERNAL", "failed: the log of this process says why")
                    patched.undo()
                    assert not asker.is_active(**known)
                    assert stream.error is None
        finally:
            serving.close()
    [line] = [each for each in caplog.records if each.name == "shardq.exporter"]
    assert line.exc_info
    assert line.exc_info[0] is KeyError


def is_let_in(asker: Keda, ref: Any) -> bool:
    """Whether a call stays open."""
    stream = asker.call("StreamIsActive", ref)
    with suppress(grpc.RpcError):
        next(stream)
        stream.cancel()
        return True
    return False
