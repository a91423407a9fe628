"""The program of this folder, where Python lacks what POSIX has, and under libraries of green threads."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from shardq import Client
from tests.cli.test_doctor_command import ACCEPTED
from tests.house.doc_blocks import ROOT
from tests.servers import Server, available

WINDOWS = ("tests.platforms.windows",)
WORKER = ("worker", "tests.platforms.imports:handle", "-q", "jobs")
GREEN = [("tests.platforms.green", "gevent"), ("tests.platforms.green", "eventlet")]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(available()[0]) as server:
        yield server


def run(words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-m", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("where", [WINDOWS, *GREEN], ids=lambda words: words[-1])
def test_clients_and_workers_of_one_process_run_there(server: Server, where: tuple[str, ...]) -> None:
    ended = run((*where, "tests.platforms.program", server.url))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "all done\n", "")


@pytest.mark.parametrize(
    "module", ["shardq", "shardq.tasks", "shardq.worker.workers", "shardq.routing", "shardq.spark"]
)
def test_what_needs_no_posix_is_imported_there(module: str) -> None:
    ended = run((*WINDOWS, "tests.platforms.imports", module))
    assert (ended.returncode, ended.stdout) == (0, "imported\n"), ended.stderr


@pytest.mark.parametrize(
    ("module", "what"),
    [
        ("shardq.edge", "the spool of an edge producer"),
        ("shardq.embedded", "an embedded server"),
        ("shardq.gateway.serving", "a gateway"),
    ],
)
def test_what_needs_posix_says_so_when_it_is_imported(module: str, what: str) -> None:
    ended = run((*WINDOWS, "tests.platforms.imports", module))
    assert ended.stdout == f"{what} needs Linux, macOS or another POSIX system: there is no {missing(module)} here\n"


def missing(module: str) -> str:
    return "resource" if module == "shardq.gateway.serving" else "fcntl"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("stats", "jobs", "--json"), 0, ""),
        (("server", "doctor", *ACCEPTED), 0, ""),
        (("embedded",), 2, "shardq: an embedded server needs Linux"),
        ((*WORKER, "--until", "empty"), 0, ": 0 done, 0 failed"),
        ((*WORKER, "--processes", "2"), 2, "shardq: --processes: "),
        ((*WORKER, "--reload"), 2, "shardq: --reload: "),
        ((*WORKER, "--run-in", "processes"), 2, "run_in='processes': "),
    ],
    ids=lambda it: " ".join(it) if isinstance(it, tuple) else "",
)
def test_commands_run_there_or_say_in_one_line_what_they_need(
    server: Server, words: tuple[str, ...], code: int, said: str
) -> None:
    with Client.from_url(server.url) as client:
        client.queue("jobs", streams=4).declare()
    ended = run((*WINDOWS, "shardq.cli", *words, "--url", server.url))
    assert (ended.returncode, said in ended.stderr, "Traceback" in ended.stderr) == (code, True, False), ended.stderr
