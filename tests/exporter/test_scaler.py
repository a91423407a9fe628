"""What a scaler answers over HTTP, whom it lets ask, and with which role of Redis it works: a real process."""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from shardq import BackendError, Client, ConfigError, Queue
from shardq.exporter.certificates import ServerCertificates
from shardq.exporter.policy import Numbers, Policy
from shardq.exporter.scaler import ScalerSettings, shown
from tests.acl import Users
from tests.exporter.scaling import Keda, ScalerProcess, refused, scaler
from tests.servers import Server
from tests.stalls import RunTime, threads
from tests.waiting import eventually


@pytest.fixture(scope="module")
def running(default_server: Server) -> Iterator[ScalerProcess]:
    with scaler(default_server.url) as started:
        yield started


@pytest.fixture
def queue(server: Server) -> Iterator[Queue]:
    with Client.from_url(server.url) as client:
        made = client.queue("jobs", streams=4)
        made.read_many(1)
        yield made


# Numbers.


def test_the_numbers_of_a_queue(running: ScalerProcess, queue: Queue) -> None:
    queue.write_many([(number, "acme") for number in range(37)])
    queue.write("later", shard_key="acme", delay=30)
    queue.read_many(7)
    found = eventually(lambda: (told := running.numbers("jobs"))["in_flight"] == 7 and told)
    assert 0 <= found.pop("oldest_age") < 60
    assert found == {
        "load": 37, "runnable": 30, "in_flight": 7, "due_soon": 1, "drain_time": None, "workers": 0, "active": True,
    }  # fmt: skip


def test_a_metric_has_a_value_and_with_a_target_workers_that_are_wanted(running: ScalerProcess, queue: Queue) -> None:
    queue.write_many([(number, "acme") for number in range(25)])
    eventually(lambda: running.numbers("jobs")["load"] == 25)
    assert running.numbers("jobs?metric=load")["value"] == 25
    found = running.numbers("jobs?metric=load&target=10")
    assert (found["value"], found["wanted"]) == (25, 3)
    assert running.numbers("jobs?target=10") == found  # by load, which is usual
    found = running.numbers("jobs?metric=drain&target=60")
    assert (found["value"], found["wanted"]) == (60, 1)  # nobody works yet
    found = running.numbers("jobs?metric=load&target=10&activation=25")
    assert (found["value"], found["wanted"], found["active"]) == (0, 0, False)


def test_the_names_of_queues_are_as_in_addresses(running: ScalerProcess, server: Server) -> None:
    with Client.from_url(server.url) as client:
        client.queue("team/mails:new", streams=2).write("x", shard_key="acme")
    for spelled in ("team/mails:new", "team%2Fmails%3Anew"):
        assert eventually(partial(running.numbers, spelled))["load"] == 1


@pytest.mark.parametrize(
    ("path", "status", "word"),
    [
        ("/queues/nowhere", 404, "nowhere"),
        ("/queues/nowhere?metric=load&target=1", 404, "nowhere"),
        ("/queues/", 400, "/queues/NAME"),
        ("/queues", 400, "/queues/NAME"),
        ("/queues/jo%00bs", 400, "queue name"),
        ("/queues/jobs?metric=xlen", 400, "metric"),
        ("/queues/jobs?metric=drain", 400, "target"),
        ("/queues/jobs?target=0", 400, "target"),
        ("/queues/jobs?target=inf", 400, "target"),
        ("/queues/jobs?lead=soon", 400, "lead"),
        ("/queues/jobs?activation=-1", 400, "activation"),
        ("/queues/jobs?valueLocation=load", 400, "nothing else"),
        ("/queues/jobs?targt=3", 400, "'targt' is not known: did you mean target?"),
        ("/queues/jobs?target=3&metric=load&target=4", 400, "target is there twice"),
        ("/queue/jobs", 404, "not found; there are /queues/, /metrics"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    running: ScalerProcess, queue: Queue, path: str, status: int, word: str
) -> None:
    code, text = running.get(path)
    assert (code, text.count("\n"), word in text) == (status, 1, True), text


def test_metrics_and_health_are_there_too(running: ScalerProcess, queue: Queue) -> None:
    queue.write("x", shard_key="acme")
    eventually(lambda: 'shardq_queue_runnable{queue="jobs"} 1' in running.get("/metrics")[1])
    assert [running.get(path)[0] for path in ("/healthz", "/readyz")] == [200, 200]


def test_the_page_has_the_queues_that_are_named_and_all_can_be_asked_for(server: Server, queue: Queue) -> None:
    with Client.from_url(server.url) as client:
        client.queue("mails", streams=1).declare()
    with scaler(server.url, "-q", "jobs") as started:
        page = started.get("/metrics")[1]
        assert ('shardq_up{queue="jobs"} 1' in page, "mails" in page) == (True, False)
        assert started.numbers("mails")["load"] == 0


def test_what_is_not_known_is_not_shown_as_less() -> None:
    """Where the outlook is missing, by age and drain time one worker would be wanted, and the others taken away."""
    unknown = Numbers(50, 10, 0, None, 9.0, None, None, None)
    assert shown(unknown, Policy("load", 10.0), ("metric",))["value"] == 60
    for metric in ("age", "drain"):
        with pytest.raises(BackendError, match="role observer"):
            shown(unknown, Policy(metric, 10.0), ("metric", "target"))
        assert shown(unknown._replace(runnable=0, in_flight=0), Policy(metric, 10.0))["active"] is False


# Who may ask, and as whom it asks Redis.


def test_each_role_that_looks_suffices(server: Server, queue: Queue) -> None:
    """The role autoscaler sees no workers: it suffices for the metric load. Nobody has to load functions."""
    queue.write("x", shard_key="acme")
    users = Users(server)
    server.run("ACL", "LOG", "RESET")  # it has what users of other tests were denied
    try:
        for role, metrics in {"observer": ("load", "age", "drain"), "autoscaler": ("load",)}.items():
            with scaler(users.url(role)) as started, Keda(started.grpc) as keda:
                for metric in metrics:
                    assert keda.value(queue="jobs", metric=metric, target="5").metricValueFloat > 0
                    assert running_value(started, metric) > 0
                if role == "autoscaler":
                    assert (
                        refused(lambda keda=keda: keda.value(queue="jobs", metric="age", target="5"))[0]
                        == "UNAVAILABLE"
                    )
                    assert started.get("/queues/jobs?metric=drain&target=60")[0] == 503
                ref = keda.ref({"queue": "jobs", "target": "5"})
                delivery = queue.read()
                delivery.ack()
                told = iter(keda.call("StreamIsActive", ref))
                while next(told).result:
                    pass
                eventually(lambda: b"cmd=xread " in server.run("CLIENT", "LIST"))
                taken = RunTime(lambda: threads([os.getpid(), started.process.pid]))
                queue.write("x", shard_key="acme")
                assert next(told).result
                taken.look()
                assert taken.until(time.monotonic()) < 1
            denied = [each[each.index(b"object") + 1] for each in server.run("ACL", "LOG")]
            assert not {b"xread", b"client|id"} & {*denied}, role
    finally:
        users.remove()


def test_strangers_hear_what_they_need_and_the_log_has_the_rest(server: Server, queue: Queue) -> None:
    """No server, user, command or role of Redis."""
    users = Users(server)
    try:
        with scaler(users.url("producer")) as started, Keda(started.grpc) as keda:
            found = [
                started.get("/queues/jobs"),
                started.get("/metrics"),
                refused(lambda: keda.is_active(queue="jobs", target="1")),
                refused(lambda: list(keda.call("StreamIsActive", keda.ref({"queue": "jobs", "target": "1"})))),
            ]
            assert started.get("/readyz")[0] == 200
            log = started.stop()[1]
    finally:
        users.remove()
    text = "Redis refused this: the log of this process says why"
    assert found == [(503, f"{text}\n"), (503, f"{text}\n"), ("UNAVAILABLE", text), ("UNAVAILABLE", text)]
    assert log.count("may not read queue 'jobs'") == 2  # one of each way to ask
    assert "shardq server acl observer jobs" in log


def running_value(started: ScalerProcess, metric: str) -> float:
    return float(started.numbers(f"jobs?metric={metric}&target=5")["value"])


@pytest.mark.runs_in("test-all")
def test_tls_and_certificates_of_clients_and_one_that_is_renewed(server: Server, queue: Queue, tmp_path: Path) -> None:
    ours, theirs = trustme.CA(), trustme.CA()
    cert, key, authority = tmp_path / "cert", tmp_path / "key", tmp_path / "ca"
    authority.write_bytes(theirs.cert_pem.bytes())

    def issue(by: trustme.CA) -> None:
        made = by.issue_cert("localhost", "127.0.0.1")
        key.write_bytes(made.private_key_pem.bytes())
        cert.write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))

    def context(trusted: trustme.CA, shows: trustme.CA | None) -> ssl.SSLContext:
        made = ssl.create_default_context()
        trusted.configure_trust(made)
        if shows is not None:
            shows.issue_cert("keda").configure_cert(made)
        return made

    issue(ours)
    words = ("--tls-cert", str(cert), "--tls-key", str(key), "--client-ca", str(authority))
    with scaler(server.url, *words) as started:
        shown_cert = theirs.issue_cert("keda")
        chain = shown_cert.cert_chain_pems[0].bytes()
        private = shown_cert.private_key_pem.bytes()

        def credentials(trusted: trustme.CA) -> grpc.ChannelCredentials:
            return grpc.ssl_channel_credentials(trusted.cert_pem.bytes(), private, chain)

        known = {"queue": "jobs", "target": "1"}
        with Keda(started.grpc, credentials(ours)) as keda:
            assert not keda.is_active(**known)
        assert started.get("/queues/jobs", context(ours, theirs))[0] == 200
        with Keda(started.grpc, grpc.ssl_channel_credentials(ours.cert_pem.bytes())) as keda:
            assert refused(lambda: keda.call("IsActive", keda.ref(known), timeout=1))[0] in (
                "UNAVAILABLE",
                "DEADLINE_EXCEEDED",
            )
        with pytest.raises(OSError):  # noqa: PT011 - an alert, or a connection that is closed
            started.get("/queues/jobs", context(ours, None))
        with pytest.raises(OSError):  # noqa: PT011 - an alert, or a connection that is closed
            started.get("/queues/jobs", context(ours, ours))
        newer = trustme.CA()
        issue(newer)
        with Keda(started.grpc, credentials(newer)) as keda:
            assert not keda.is_active(**known)
        assert started.get("/queues/jobs", context(newer, theirs))[0] == 200
        cert.write_text("no certificate")
        assert started.get("/queues/jobs", context(newer, theirs))[0] == 200
        with Keda(started.grpc, credentials(newer)) as keda:
            assert not keda.is_active(**known)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"listen": "8080"}, "--listen"),
        ({"listen": ":8080", "grpc": "here"}, "--grpc"),
        ({"listen": ":8080", "tls_cert": Path("x")}, "--tls-key"),
        ({"listen": ":8080", "client_ca": Path("x")}, "--client-ca"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        ScalerSettings(**settings)


def test_files_that_are_no_certificate_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("nothing")
    with pytest.raises(ConfigError, match="no certificate"):
        ServerCertificates(file, file)
    with pytest.raises(ConfigError, match="--tls-key"):
        ServerCertificates(file, tmp_path / "missing")


@pytest.mark.runs_in("test-all")
def test_a_port_that_somebody_has_is_said(server: Server) -> None:
    """Also one of a scaler: two would each get a part of the calls."""
    with scaler(server.url) as first, socket.create_server(("127.0.0.1", 0)) as taken:
        for listen in (first.grpc, f"127.0.0.1:{taken.getsockname()[1]}"):
            with pytest.raises(AssertionError, match=listen):
                ScalerProcess(server.url, "--grpc", listen)


@pytest.mark.runs_in("test-all")
def test_without_redis_it_starts_and_says_so(server: Server, queue: Queue) -> None:
    server.kill9()
    try:
        with scaler(server.url) as started, Keda(started.grpc) as keda:
            assert started.get("/readyz")[0] == 503
            assert started.get("/queues/jobs") == (503, "Redis does not answer\n")
            told = refused(lambda: keda.is_active(queue="jobs", target="1"))
            assert told == ("UNAVAILABLE", "Redis does not answer")
            server.start()
            eventually(lambda: started.get("/queues/jobs")[0] == 404)
    finally:
        server.start()


def test_the_health_of_grpc_is_that_of_redis(running: ScalerProcess, server: Server) -> None:
    from grpc_health.v1 import health_pb2

    with Keda(running.grpc) as keda:
        check = keda.channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            health_pb2.HealthCheckRequest.SerializeToString,
            health_pb2.HealthCheckResponse.FromString,
        )
        for service in ("", "externalscaler.ExternalScaler"):
            assert (
                check(health_pb2.HealthCheckRequest(service=service)).status == health_pb2.HealthCheckResponse.SERVING
            )
        assert refused(lambda: check(health_pb2.HealthCheckRequest(service="other")))[0] == "NOT_FOUND"
