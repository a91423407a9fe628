"""`shardq worker app:tasks` as a process, in a folder of its own: what it says, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shardq import Client
from tests.waiting import eventually

APP = """
from shardq.backoff import Constant
from shardq.tasks import Tasks

tasks: Tasks[None] = Tasks("jobs", result_ttl=60)


@tasks.task(name="double")
def double(number: int) -> int:
    return 2 * number


@tasks.task(name="fails", retries=1, backoff=Constant(0))
async def fails(secret: str) -> None:
    raise ValueError
"""
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path / "app.py"


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "shardq.cli", "worker", *words]


def environment(url: str) -> dict[str, str]:
    return os.environ | {"SHARDQ_URL": url, "PYTHONPATH": str(Path(__file__).parents[2])}


@pytest.fixture
def run(app: Path, url: str) -> Run:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*words), cwd=app.parent, env=environment(url), capture_output=True, text=True, timeout=60
        )

    return run


def write(client: Client, *calls: Any) -> list[str]:
    queue = client.queue("jobs", result_ttl=60)
    return [str(queue.write(call, shard_key="acct-7")) for call in calls]


def test_it_says_when_it_starts_and_when_it_ends(run: Run, client: Client) -> None:
    write(client, ["double", {"number": 1}], ["double", {"number": 2}], ["fails", {"secret": "a secret"}])
    ended = run("app:tasks", "--until", "empty")
    assert (ended.returncode, ended.stdout) == (0, "")
    first, *others, last = ended.stderr.splitlines()
    assert re.fullmatch(rf"shardq: {TIME} worker \d+, version \S+: 2 tasks, queue 'jobs' at \S+, concurrency 64", first)
    assert re.fullmatch(rf"shardq: {TIME} worker \d+ ended after \d+\.\d s: 2 done, 2 failed, 0 given back", last)
    assert sum("is a dead letter" in line for line in others) == 1
    assert "a secret" not in ended.stderr


def test_the_start_line_has_no_password(app: Path) -> None:
    told = app.parent / "told"
    words = command("app:tasks", "--timeout", "0.1", "--url", "redis://:geheim@localhost:1/0")
    with (
        told.open("wb") as errors,
        subprocess.Popen(words, cwd=app.parent, env=environment(""), stderr=errors) as process,
    ):
        eventually(lambda: "tries again until it can" in told.read_text(), 60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert "at redis://:***@localhost:1/0" in told.read_text()
    assert "geheim" not in told.read_text()


def test_lines_of_json_have_what_a_message_is_of(run: Run, client: Client) -> None:
    (message_id,) = write(client, ["fails", {"secret": "a secret"}])
    ended = run("app:tasks", "--until", "empty", "--log-format", "json")
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    assert all({"time", "level", "text"} <= line.keys() for line in lines)
    assert all(re.fullmatch(TIME, line["time"]) for line in lines)
    (dead,) = [line for line in lines if "is a dead letter" in line["text"]]
    assert {name: dead[name] for name in ("level", "queue", "tenant", "task", "message_id", "delivery")} == {
        "level": "warning", "queue": "jobs", "tenant": "acct-7", "task": "fails", "message_id": message_id,
        "delivery": 2,
    }  # fmt: skip
    assert "ValueError" in dead["traceback"]
    assert "a secret" not in ended.stderr


def test_how_much_it_says(run: Run, client: Client) -> None:
    write(client, ["double", {"number": 1}])
    quiet = run("app:tasks", "--until", "empty", "--quiet")
    assert (quiet.returncode, quiet.stderr) == (0, "")
    (message_id,) = write(client, ["double", {"number": 1}])
    loud = run("app:tasks", "--until", "empty", "-v")
    assert re.search(f"task double, message {message_id}: delivery 1 took [0-9.]+ s: ack", loud.stderr)


def test_tasks_in_processes(run: Run, app: Path, client: Client) -> None:
    queue = client.queue("jobs", result_ttl=60)
    (message_id,) = write(client, ["double", {"number": 4}])
    ended = run("app:tasks", "--until", "empty", "--run-in", "processes")
    assert ended.returncode == 2, "one task of these is async"
    assert "is async" in ended.stderr
    assert queue.status(message_id).state == "waiting"
    app.write_text(APP.replace("async def", "def"))
    ended = run("app:tasks", "--until", "empty", "--run-in", "processes")
    assert ended.returncode == 0
    assert queue.result(message_id, timeout=0) == 8


MAILS = """
from shardq.tasks import Tasks

mails: Tasks[None] = Tasks("mails", result_ttl=60)


@mails.task(name="mail")
def mail(to: str) -> str:
    return to
"""


def test_several_queues_with_weights(run: Run, app: Path, client: Client) -> None:
    (app.parent / "mails.py").write_text(MAILS)
    queues = client.queue("jobs", result_ttl=60), client.queue("mails", result_ttl=60)

    def write_both() -> list[str]:
        calls = ["double", {"number": 4}], ["mail", {"to": "x@y.z"}]
        return [str(queue.write(call, shard_key="t")) for queue, call in zip(queues, calls, strict=True)]

    for words in ((), ("--processes", "2")):
        ids = write_both()
        ended = run("app:tasks=3", "mails:mails", "--until", "empty", *words)
        assert ended.returncode == 0, ended.stderr
        assert [queue.result(each, timeout=0) for queue, each in zip(queues, ids, strict=True)] == [8, "x@y.z"]
        assert ": 3 tasks, queues 'jobs' (weight 3), 'mails' (weight 1) at " in ended.stderr
    ids = write_both()
    ended = run("app:tasks=3", "--until", "empty")
    assert (ended.returncode, queues[1].status(ids[1]).state) == (0, "waiting")
    assert queues[0].result(ids[0], timeout=0) == 8


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("app:nothing",), 2, "has no function and no tasks 'nothing'"),
        (("missing:tasks",), 2, "no module 'missing'"),
        (("app",), 2, "module:function, not .app., which has app:tasks"),
        (("app.tasks",), 2, "no module .app.tasks."),
        (("app:double",), 2, "--queue is missing"),
        (("app:tasks", "-v", "--quiet"), 2, "cannot be both"),
        (("app:tasks", "app:double"), 2, "app:double is a function: only a Tasks can"),
        (("app:double=2",), 2, "app:double is a function: only a Tasks can"),
        (("app:tasks", "app:tasks"), 2, "app:tasks is there twice"),
        (("app:tasks", "others:tasks"), 2, "two Tasks are of queue 'jobs': declare its tasks in one of them"),
        (("app:tasks=x",), 2, "must be from 1 to 1000, as in app:tasks=3, not 'x'"),
        (("app:tasks=0",), 2, "must be from 1 to 1000, as in app:tasks=3, not '0'"),
        (("app:tasks=2", "-q", "jobs"), 2, "--queue is for one handler"),
        (("wrong:tasks",), 2, r"'wrong.wrong' \(\S+wrong.py:6\) has retries=99"),
        (("./app.py:tasks",), 2, "a module is named, not a file: app:tasks$"),
        (("app.py",), 2, "a module is named, not a file: app:handle$"),
        (("pack/jobs.py:tasks",), 2, "a module is named, not a file: pack.jobs:tasks$"),
        (("../app.py:tasks",), 2, "go to its folder, and write app:tasks$"),
        ((".app:tasks",), 2, "a module is named"),
    ],
)
def test_how_it_ends_when_it_cannot_begin(run: Run, app: Path, words: tuple[str, ...], code: int, text: str) -> None:
    (app.parent / "wrong.py").write_text(
        "from shardq.tasks import Tasks\n\ntasks = Tasks('jobs')\n\n\n@tasks.task(retries=99)\ndef wrong(): ...\n"
    )
    (app.parent / "others.py").write_text("from shardq.tasks import Tasks\n\ntasks = Tasks('jobs')\n")
    ended = run(*words)
    assert ended.returncode == code
    assert re.search(text, ended.stderr)


def test_a_file_with_the_name_of_a_module_of_pythons_own(app: Path, url: str) -> None:
    app.rename(app.parent / "queue.py")
    words = [sys.executable, "-P", *command("queue:tasks")[1:]]  # so that Python starts as it does for `shardq`
    ended = subprocess.run(words, cwd=app.parent, env=environment(url), capture_output=True, text=True, timeout=60)
    text = "shardq: module 'queue' has no function and no tasks 'tasks': it is Python's own module, and hides queue.py"
    assert (ended.returncode, ended.stderr.splitlines()) == (2, [f"{text} of this folder: rename that"])


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("def broken(: pass", r"SyntaxError: .*\(module.py, line 1\)$"),
        ("import nothere", r"ModuleNotFoundError: No module named 'nothere' \(module.py, line 1\)$"),
        ("import json\n\njson.loads('{')", r"JSONDecodeError: .* \(module.py, line 3\)$"),
        ("raise SystemExit(3)", r"SystemExit: 3 \(module.py, line 1\)$"),
        ("class E(Exception):\n  def __str__(self): raise self\nraise E", r"E \(module.py, line 3\)$"),
        ("def __getattr__(name): return 1 / 0", r"ZeroDivisionError: division by zero \(module.py, line 1\)$"),
        ("import colorsys\n\ncolorsys.rgb_to_hsv", r"AttributeError: .*colorsys.py of this folder hides Python's own"),
    ],
)
def test_a_module_that_fails_is_one_line_that_says_where(run: Run, app: Path, source: str, text: str) -> None:
    (app.parent / "module.py").write_text(source)
    (app.parent / "colorsys.py").touch()
    ended = run("module:tasks")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1), ended.stderr
    assert re.search(rf"^shardq: module 'module' cannot be imported: {text}", ended.stderr, re.MULTILINE), ended.stderr


@pytest.fixture
def reloaded(app: Path, url: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    told = app.parent / "told"
    with told.open("wb") as errors:
        process = subprocess.Popen(
            command("app:tasks", "--reload", "-v"), cwd=app.parent, env=environment(url), stderr=errors
        )
    yield process, told
    process.kill()
    process.wait()


def test_it_begins_anew_when_a_file_changes(
    reloaded: tuple[subprocess.Popen[bytes], Path], app: Path, client: Client
) -> None:
    process, told = reloaded
    queue = client.queue("jobs", result_ttl=60)
    (first,) = write(client, ["double", {"number": 4}])
    assert queue.result(first, timeout=60) == 8
    app.write_text("this is no Python")
    eventually(lambda: "SyntaxError" in told.read_text(), 60)
    app.write_text(APP.replace("2 * number", "3 * number"))
    (second,) = write(client, ["double", {"number": 4}])
    assert queue.result(second, timeout=60) == 12
    assert told.read_text().count("app.py has changed: the worker restarts") == 2
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert queue.stats().in_flight == 0
