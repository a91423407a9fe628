"""What a worker tells of tries that failed: the class, how, and where; whatever users raise."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shardq import Client, Delivery, Nack, Queue, Reject
from shardq.backoff import Constant
from tests.waiting import eventually
from tests.worker import handlers
from tests.worker.conftest import Begin
from tests.worker.running import Gate, RunningWorker

AT_ONCE = Constant(0)


class Meta(type):
    """A metaclass that answers nothing."""

    def __getattribute__(cls, name: str) -> Any:
        raise SystemExit(name)


def of_meta() -> BaseException:
    """An error of such a class, which no module may have: pytest looks at these."""

    class OfMeta(Exception, metaclass=Meta):
        pass

    return OfMeta()


class Liar(Exception):
    """An error that says that it is a list."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return list

    def __getattribute__(self, name: str) -> Any:
        if name in ("__class__", "args"):
            return list
        raise KeyboardInterrupt(name)

    def __str__(self) -> str:
        raise KeyboardInterrupt


class OwnReject(Reject):
    """An application's own way to say no."""


RAISED: dict[str, Any] = {
    "value": lambda: ValueError("a|b\nc"),
    "meta": of_meta,
    "liar": Liar,
    "mute": handlers.Mute,
    "named": type("two words|and\na bar", (Exception,), {}),
    "nack": lambda: Nack(0, "again"),
    "reject": lambda: Reject("never"),
    "own": lambda: OwnReject("mine"),
    "exit": lambda: SystemExit(2),
}
CLASSES = {
    "value": "ValueError", "meta": "OfMeta", "liar": "Liar", "mute": "Mute", "named": "two_words_and_a_bar", "nack": "",
    "exit": "SystemExit",
}  # fmt: skip


def told(queue: Queue) -> dict[tuple[str, str], tuple[int, int]]:
    """By class and reason: how many were retried, and are dead."""
    return {(each.error_type, each.reason): (each.retried, each.dead) for each in queue.failures()}


def test_each_error_is_told_by_the_name_of_its_class_and_by_no_code_of_its_own(begin: Begin, jobs: Queue) -> None:
    jobs.write_many([(each, each) for each in RAISED])

    def handle(delivery: Delivery) -> None:
        raise RAISED[delivery.payload]()

    begin(handle, backoff=AT_ONCE)
    eventually(lambda: jobs.stats().dead == len(RAISED))
    assert told(jobs) == {
        **{(name, "retry"): (2, 0) for name in CLASSES.values()},
        **{(name, "dead"): (0, 1) for name in CLASSES.values()},
        ("", "rejected"): (0, 1),
        ("OwnReject", "rejected"): (0, 1),
    }
    traces = {each.error_type: each.trace for each in jobs.failures() if each.reason == "retry"}
    assert all(traces[name].endswith(" in handle") for name in ("ValueError", "OfMeta", "Liar", "Mute"))
    assert not any("a|b" in trace for trace in traces.values())
    letters = {letter.shard_key: (letter.error_type, letter.failure_reason) for letter in jobs.dead()}
    assert letters == {
        **{each: (name, "dead") for each, name in CLASSES.items()},
        "reject": ("", "rejected"), "own": ("OwnReject", "rejected"),
    }  # fmt: skip


def test_a_payload_that_cannot_be_decoded_is_told_as_such(begin: Begin, jobs: Queue, url: str) -> None:
    class Other:
        tag = "Z"

        def encode(self, value: Any) -> bytes:
            return str(value).encode()

        def decode(self, body: bytes) -> Any:
            return body

    with Client.from_url(url, codec=Other()) as other:  # no codec is known here of its tag
        other.queue("jobs").write("fine", shard_key="t")
    begin(lambda delivery: delivery.payload, backoff=AT_ONCE)
    eventually(lambda: jobs.stats().dead == 1)
    assert told(jobs) == {("CodecError", "cannot decode"): (2, 1)}


def test_a_time_limit_is_told_as_such(begin: Begin, jobs: Queue) -> None:
    gate = Gate()
    jobs.write(0, shard_key="t")
    begin(gate, time_limit=0.1, backoff=AT_ONCE, concurrency=4)
    eventually(lambda: jobs.stats().dead == 1)
    gate.open.set()
    assert told(jobs) == {("TimeLimit", "time limit"): (2, 1)}


@pytest.mark.runs_in("test-all")
def test_what_failed_in_child_processes_is_told_as_in_this_one(
    jobs: Queue, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDQ_TEST_LOG", str(tmp_path / "log"))
    (tmp_path / "log").touch()
    jobs.write_many([(each, each) for each in ("fail", "kill", "exit", "reject")])
    with RunningWorker("sync", url, "jobs", handlers.varied, concurrency=2, backoff=AT_ONCE, run_in="processes"):
        eventually(lambda: jobs.stats().dead == 4, 60)
    assert told(jobs) == {
        ("ValueError", "retry"): (2, 0),
        ("ValueError", "dead"): (0, 1),
        ("ProcessDied", "process died"): (4, 2),
        ("", "rejected"): (0, 1),
    }
    (trace,) = {each.trace for each in jobs.failures() if each.reason == "retry"}
    assert trace.startswith(str(Path(handlers.__file__).resolve()))
    assert trace.endswith(" in varied")
    reasons = Counter(letter.failure_reason for letter in jobs.dead())
    assert reasons == {"dead": 1, "process died": 2, "rejected": 1}
