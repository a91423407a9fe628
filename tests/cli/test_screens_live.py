"""The screens on a real server: queues, stats, workers, failures and actions, with workers that live, die and fail."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shardq import Client, Queue
from shardq.cli.width import width
from tests.acl import Users
from tests.cli.conftest import Command
from tests.servers import Server
from tests.waiting import eventually

HANDLERS = """
import time
def slow(delivery):
    time.sleep(600)
def fails(delivery):
    raise TimeoutError("smtp.example took longer than 10 s")
"""


@contextmanager
def working(cli: Command, folder: Path, handler: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker process of its own, killed at the end."""
    (folder / "screen_handlers.py").write_text(HANDLERS)
    command = Command(cli.url, {"PYTHONPATH": str(folder)})
    pipe = subprocess.DEVNULL
    with command.start(
        "worker", f"screen_handlers:{handler}", "-q", "jobs", *words, stdout=pipe, stderr=pipe
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_there_is_nothing_to_look_at(cli: Command) -> None:
    for words, why in (
        (["queues"], "there are no queues"),
        (["workers"], "no worker was heard in the last hour"),
        (["stats", "jobs"], "there is no queue 'jobs'"),
        (["workers", "jobs"], "there is no queue 'jobs'"),
        (["failures", "jobs"], "there is no queue 'jobs'"),
        (["actions", "jobs"], "there is no queue 'jobs'"),
    ):
        told = cli(*words)
        assert (told.code, told.out, why in told.err) == (3, "", True), words


def test_nothing_that_fails_and_no_action_is_nothing(cli: Command, queue: Queue) -> None:
    for words in (["failures", "jobs"], ["failures", "jobs", "--letters"], ["actions", "jobs"], ["workers", "jobs"]):
        told = cli(*words)
        assert (told.code, told.out, told.err.count("\n")) == (3, "", 1), words


def test_who_waits_for_what_adds_up(cli: Command, queue: Queue) -> None:
    queue.write_many([(b"x", "acme")] * 30)
    queue.write(b"x", shard_key="acme", delay=600)
    queue.pause("other")
    queue.write(b"x", shard_key="other")
    lines = cli("stats", "jobs").out.splitlines()
    assert lines[0] == "jobs has no worker: 31 messages wait."
    assert lines[1].startswith("waiting 32: for a worker 30, paused 1, not due 1")
    (told,) = cli("stats", "jobs", "--json").objects
    assert sum(told["outlook"]["reasons"].values()) == told["outlook"]["waits"] == 32
    assert (told["verdict"]["kind"], told["backlog"]) == ("no_worker", 31)


@pytest.mark.parametrize(
    ("field", "value"),
    [("load", "5"), ("len", "5"), ("backlog", "4"), ("in_flight", "1"), ("oldest_age", None), ("drain_seconds", "-")],
)
def test_one_number_is_printed_alone(cli: Command, queue: Queue, field: str, value: str | None) -> None:
    queue.write_many([(b"x", f"t{n}") for n in range(5)])
    queue.read()
    told = cli("stats", "jobs", "--field", field)
    assert (told.code, told.err) == (0, "")
    assert told.out == f"{value}\n" if value is not None else re.fullmatch(r"\d+(\.\d+)?\n", told.out)
    (said,) = cli("stats", "jobs", "--field", field, "--json").objects
    assert said.keys() == {"queue", field}


def test_a_typo_of_a_number_is_told(cli: Command, queue: Queue) -> None:
    told = cli("stats", "jobs", "--field", "backlg")
    assert (told.code, told.out) == (2, "")


@pytest.mark.runs_in("test-all")
def test_a_worker_is_seen_while_it_works_and_its_queue_has_one(cli: Command, queue: Queue, tmp_path: Path) -> None:
    queue.write_many([(b"x", "acme")] * 4)
    with working(cli, tmp_path, "slow", "-c", "2") as process:
        eventually(lambda: "2/2" in cli("workers").out, 60)
        told = cli("workers")
        assert (told.code, told.out.splitlines()[0]) == (0, "1 worker works, 2 of 2 slots busy.")
        (row,) = cli("workers", "jobs", "--json").objects
        assert (row["pid"], row["state"], row["slots"], row["queue"]) == (process.pid, "working", 2, "jobs")
        assert cli("queues", "--json").objects[0]["state"] != "no_worker"
        assert "1 worker reads jobs, 2 of 2 slots busy." in cli("workers", "jobs").out
        process.send_signal(signal.SIGTERM)


@pytest.mark.runs_in("test-all")
def test_looking_again_outlives_a_server_that_is_away(cli_server: Server, cli: Command, queue: Queue) -> None:
    pipe = subprocess.PIPE
    words = ("queues", "--watch", "0.05", "--json", "--timeout", "0.2")
    with cli.start(*words, stdout=pipe, stderr=pipe) as process:
        assert process.stdout
        assert process.stderr
        assert b'"queue":"jobs"' in process.stdout.readline()
        cli_server.pause()
        assert b"no answer from Redis" in process.stderr.readline()
        cli_server.resume()
        with Client.from_url(cli_server.url) as client:
            client.queue("later", streams=1).declare()
        eventually(lambda: b'"queue":"later"' in process.stdout.readline(), 30)  # type: ignore[union-attr]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=150)
    assert process.returncode == 130


def bury(queue: Queue, count: int, error: str, shard_key: str = "t") -> None:
    queue.write_many([({"n": n}, shard_key) for n in range(count)])
    while deliveries := queue.read_many(100):
        for delivery in deliveries:
            delivery.reject(error)


def test_letters_are_listed_by_the_filter(cli: Command, queue: Queue) -> None:
    bury(queue, 3, "TimeoutError: smtp", "acme")
    bury(queue, 2, "no such address", "other")
    assert len(cli("failures", "jobs", "--letters").out.splitlines()) == 6
    assert len(cli("failures", "jobs", "--letters", "--error", "Timeout", "--json").objects) == 3
    assert len(cli("failures", "jobs", "--letters", "--tenant", "other", "--json").objects) == 2
    assert len(cli("failures", "jobs", "--letters", "--newer-than", "1h", "-n", "4", "--json").objects) == 4
    told = cli("failures", "jobs", "--letters", "--older-than", "1h")
    assert (told.code, told.out) == (3, "")
    told = cli("failures", "jobs", "--letters", "-n", "2")
    assert told.err == "shardq: 3 more; see --limit\n"


def test_an_action_is_listed_and_one_that_is_not_there_is_nothing(cli: Command, queue: Queue) -> None:
    bury(queue, 3, "bad")
    assert cli("redrive", "jobs", "--yes", "--by", "mia", "--note", "mended").code == 0
    lines = cli("actions", "jobs").out.splitlines()
    assert lines[0] == "No action runs."
    assert re.match(r"\S+ +redrive +\S+.* done +3 +\S+ +mia +\d\d:\d\d$", lines[2])
    (row,) = cli("actions", "jobs", "--json").objects
    assert (row["by"], row["note"], row["done"], row["state"]) == ("mia", "mended", 3, "done")
    for verb in ("stop", "take-over"):
        assert cli("actions", "jobs", verb, "nope", "--yes").code == 3
        assert cli("actions", "jobs", verb).code == 2


NAMES = ("株式会社" * 60, "x" * 1000, "\x1b[31mred\n", "é" * 400)


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_each_screen_stays_within_80_columns_whatever_tenants_are_called(cli: Command, queue: Queue, name: str) -> None:
    queue.write_many([(b"x", name)] * 600)
    queue.write(b"x", shard_key="quiet")
    queue.read().nack(error=name)
    queue.read().reject(name)
    queue.pause(name, by="mia", note=" ".join(name[5:100].split()))
    for words in (["queues"], ["stats", "jobs"], ["failures", "jobs"], ["failures", "jobs", "--letters", "--payloads"]):
        told = cli(*words)
        assert told.code == 0, told.err
        assert max(map(width, told.out.splitlines())) <= 80, words


def test_who_may_read_numbers_alone_sees_numbers(cli: Command, queue: Queue, cli_server: Server) -> None:
    """An autoscaler has no right to look at workers or tenants."""
    queue.write(b"x", shard_key="acme")
    users = Users(cli_server)
    try:
        told = cli("stats", "jobs", "--url", users.url("autoscaler"))
        assert (told.code, told.err) == (0, "")
        assert re.search(r"^backlog +1$", told.out, re.MULTILINE)
        assert cli("stats", "jobs", "--field", "load", "--url", users.url("autoscaler")).out == "1\n"
        for words in (["queues"], ["stats", "jobs"]):
            assert "jobs has no worker" in cli(*words, "--url", users.url("observer")).out.splitlines()[0]
        assert cli("workers", "--url", users.url("observer")).out == "No worker reads jobs.\n"
        for words in (["failures", "jobs"], ["actions", "jobs"]):
            assert cli(*words, "--url", users.url("observer")).code == 3
    finally:
        users.remove()
