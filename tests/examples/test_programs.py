"""The API server, the worker and the autoscaler, as processes of their own against a server at a URL."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from shardq import Client, Queue
from tests.servers import Server
from tests.waiting import eventually

pytestmark = [pytest.mark.once, pytest.mark.runs_in("test-all")]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
BEFORE_JOBS = {"length": 0, "runnable": 0, "oldest_age": None, "delayed": 0, "workers": 0}


class Program:
    """One example as a process; its lines are collected as they come."""

    def __init__(self, name: str, *words: str) -> None:
        command = [sys.executable, "-W", "error", str(EXAMPLES / name), *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._threads = [
            threading.Thread(target=into.extend, args=(stream,))
            for into, stream in ((self.lines, self.process.stdout), (self.errors, self.process.stderr))
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream
            stream.close()
        print(*self.errors, sep="")  # pytest shows it where a test fails

    def wait_for(self, text: str) -> str:
        """The first line with *text* in it."""
        return eventually(lambda: next((line for line in list(self.lines) if text in line), None), what=text) or ""

    def end(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def ask(address: str, verb: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, dict[str, Any]]:
    """One HTTP request; status and answer."""
    connection = http.client.HTTPConnection(address, timeout=30)
    with contextlib.closing(connection):
        connection.request(verb, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, json.load(answer)


def post(address: str, body: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
    """POST /jobs; status and answer."""
    return ask(address, "POST", "/jobs", body, **headers)


def accepted(address: str, body: bytes, **headers: str) -> dict[str, Any]:
    """The answer to a POST of /jobs, which is made again until the queue answers the API server in time."""
    headers.setdefault("Idempotency_Key", secrets.token_hex(8))  # as a client should: a 503 may have stored it

    def answer() -> dict[str, Any] | None:
        status, body_of = post(address, body, **headers)
        assert status in (202, 503), body_of
        return body_of if status == 202 else None

    return eventually(answer) or {}


@pytest.fixture
def api(server: Server) -> Iterator[Program]:
    with Program("api_server.py", "0", server.url) as program:
        yield program


@pytest.fixture
def address(api: Program) -> str:
    return api.wait_for("listening on ").strip().rpartition("/")[2]


@pytest.fixture
def jobs(server: Server) -> Iterator[Queue]:
    with Client.from_url(server.url) as client:
        yield client.queue("jobs", create=True)


def test_jobs_that_are_posted_are_worked_off_and_the_autoscaler_sees_it(
    server: Server, api: Program, address: str, jobs: Queue
) -> None:
    for n in range(25):
        tenant = f"tenant-{n % 3}"
        body = accepted(address, json.dumps({"prompt": f"cat {n}"}).encode(), X_Tenant=tenant, Idempotency_Key=f"{n}")
        assert list(body) == ["id"]
    assert ask(address, "GET", "/healthz") == (200, {"length": 25})
    with Program("autoscaler.py", server.url, "0.05") as scaler:
        told = json.loads(scaler.wait_for('"length": 25'))
        assert told["workers"] == 3  # one per 10 jobs
        assert told["oldest_age"] > 0
        with Program("worker.py", server.url) as one, Program("worker.py", server.url) as two:
            eventually(lambda: len(one.lines) + len(two.lines) == 25, what="all jobs done")
            assert json.loads(scaler.wait_for('"length": 0')) == BEFORE_JOBS
            assert sorted(one.lines + two.lines) == sorted(f"tenant-{n % 3}: CAT {n}\n" for n in range(25))
            eventually(lambda: server.info("clients")["blocked_clients"] == 2, what="both workers wait for more")
            assert [program.end() for program in (one, two, scaler, api)] == [0, 0, 0, 0]
            assert one.errors == two.errors == scaler.errors == []
    now = jobs.stats()
    assert (now.acked, now.backlog, now.in_flight, now.dead) == (25, 0, 0, 0)


def test_one_job_that_is_scheduled_ahead_needs_a_worker_shortly_before(server: Server, jobs: Queue) -> None:
    jobs.cancel(jobs.write("makes the queue", shard_key="tenant"))
    with Program("autoscaler.py", server.url, "0.05") as scaler:
        scaler.wait_for('"delayed": 0')
        jobs.write("much later", shard_key="tenant", delay=1000)
        told = json.loads(scaler.wait_for('"delayed": 1'))
        assert (told["length"], told["oldest_age"], told["workers"]) == (0, None, 0)
        jobs.write("soon", shard_key="tenant", delay=3)
        told = json.loads(scaler.wait_for('"delayed": 2'))
        assert (told["length"], told["workers"]) == (0, 1)
        told = json.loads(scaler.wait_for('"length": 1'))
        assert told["oldest_age"] < 1000
        assert told["workers"] == 1


@pytest.mark.runs_in("test", "test-all")
def test_an_autoscaler_of_a_mistyped_queue_ends_and_names_it(server: Server) -> None:
    with Program("autoscaler.py", server.url, "0.05", "typo") as scaler:
        assert scaler.process.wait(60) == 1
        (line,) = eventually(lambda: scaler.errors, what="a line that says why")
        assert line.startswith("autoscaler: there is no queue 'typo'")
    assert scaler.lines == [], "no numbers, no decision"


def test_a_job_is_found_by_its_id_and_without_a_queue_there_is_none(address: str, jobs: Queue) -> None:
    """QueueMissing is a ValueError, too, but the request was not bad. A text that is no id is one that is not there."""
    status, answer = ask(address, "GET", "/jobs/1-1-0")
    assert (status, answer["error"].startswith("there is no queue 'jobs'")) == (404, True)
    made = accepted(address, b"{}", X_Tenant="t")
    assert ask(address, "GET", f"/jobs/{made['id']}") == (200, {"state": "waiting"})
    assert ask(address, "GET", "/jobs/nonsense")[0] == 404


def test_an_idempotency_key_stores_a_job_once(address: str, jobs: Queue) -> None:
    answers = [accepted(address, b"{}", X_Tenant="t", Idempotency_Key="k") for _ in range(2)]
    assert answers[0] == answers[1]
    assert accepted(address, b"{}", X_Tenant="other", Idempotency_Key="k") != answers[0]
    assert jobs.len() == 2


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 200_000, b'"\xff"', b'"' + b"x" * 2_000_000 + b'"'], ids=len)
def test_what_is_not_a_job_is_refused(address: str, jobs: Queue, body: bytes) -> None:
    status, answer = post(address, body, X_Tenant="t")
    assert (status, list(answer)) == (400, ["error"])
    assert post(address, b"{}")[0] == 400  # no tenant
    jobs.cancel(jobs.write("makes the queue", shard_key="tenant"))


def test_a_job_that_fails_is_given_back_and_the_worker_goes_on(server: Server, address: str, jobs: Queue) -> None:
    accepted(address, b'{"no": "prompt"}', X_Tenant="t")
    with Program("worker.py", server.url) as worker:
        eventually(lambda: any("attempt 2 failed" in line for line in list(worker.errors)))
        accepted(address, b'{"prompt": "a cat"}', X_Tenant="t")
        worker.wait_for("t: A CAT")
        assert worker.end() == 0
    assert jobs.stats().backlog + jobs.stats().delayed == 1


def test_who_has_its_share_of_the_queue_is_told_when_to_post_again(address: str, jobs: Queue) -> None:
    jobs.declare()
    jobs.configure(max_dedup=5, dedup_window=100)
    for number in range(5):
        connection = http.client.HTTPConnection(address, timeout=30)
        with contextlib.closing(connection):
            connection.request("POST", "/jobs", b"{}", {"X-Tenant": "t", "Idempotency-Key": str(number)})
            answer = connection.getresponse()
            assert answer.status == (202 if number < 4 else 429)
    assert 90 < int(answer.headers["Retry-After"]) <= 100
    accepted(address, b"{}", X_Tenant="u", Idempotency_Key="0")


def test_the_three_sit_out_a_crash_of_the_server(server: Server, address: str, api: Program) -> None:
    with Program("worker.py", server.url) as worker, Program("autoscaler.py", server.url, "0.05") as scaler:
        accepted(address, b'{"prompt": "one"}', X_Tenant="t")
        worker.wait_for("t: ONE")
        scaler.wait_for("length")
        server.kill9()
        assert post(address, b'{"prompt": "lost"}', X_Tenant="t")[0] == 503
        eventually(lambda: scaler.errors, what="an error of the autoscaler")
        server.start()
        accepted(address, b'{"prompt": "two"}', X_Tenant="t")
        worker.wait_for("t: TWO")
        assert [program.end() for program in (worker, scaler, api)] == [0, 0, 0]


def test_sigterm_lets_a_worker_finish_what_it_does(server: Server, jobs: Queue) -> None:
    with Program("worker.py", server.url) as worker:
        jobs.write({"prompt": "x" * 300_000}, shard_key="t")
        eventually(lambda: jobs.stats().in_flight or jobs.stats().acked, what="the job was taken")
        assert worker.end() == 0
    assert (jobs.stats().acked, jobs.stats().in_flight) == (1, 0)
    assert os.environ.get("SHARDQ_URL") != server.url  # the argument was enough
