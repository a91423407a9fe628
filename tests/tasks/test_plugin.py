"""The fixtures for users' tests, in a project of its own whose tests a process of pytest runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

APP = """
import asyncio

from shardq.backoff import Constant
from shardq.tasks import Tasks

tasks: Tasks[None] = Tasks("orders", result_ttl=60)
tries = []


@tasks.task(name="double")
def double(number: int) -> int:
    return 2 * number


@tasks.task(name="patient", retries=1, backoff=Constant(3600))
def patient() -> str:
    tries.append(tasks.delivery.count)
    if tasks.delivery.count == 1:
        raise ConnectionError
    return "done"
"""
TESTS = """
import asyncio
import threading
import time

from app import double, patient, tasks, tries
from shardq import AsyncWorker, Worker


def test_a_function_is_called():
    assert double(3) == 6


def test_a_worker(shardq_queue):
    queue = shardq_queue(tasks)
    job = queue.write(double.call(3), shard_key="t")
    Worker(queue, tasks, until="empty").run()
    assert job.result(timeout=0) == 6


def test_each_test_has_a_queue_of_its_own(shardq_queue, shardq_server):
    assert shardq_server.running
    assert shardq_queue(tasks).stats().acked == 0
    assert shardq_queue("other", streams=4, create=True).name == "other"


def test_a_worker_of_asyncio(shardq_async_queue):
    async def run():
        async with shardq_async_queue(tasks) as queue:
            job = await queue.write(double.call(4), shard_key="t")
            await AsyncWorker(queue, tasks, until="empty").run()
            return await job.result(timeout=0)

    assert asyncio.run(run()) == 8


def test_an_hour_passes(shardq_clocked_queue, shardq_clock):
    queue = shardq_clocked_queue(tasks)
    job = queue.write(patient.call(), shard_key="t", delay=60)
    worker = Worker(queue, tasks)
    running = threading.Thread(target=worker.run)
    running.start()
    began = shardq_clock.monotonic()
    assert (queue.stats().delayed, tries) == (1, [])
    shardq_clock.advance(60)
    while queue.stats().delayed == 0 or tries != [1]:
        time.sleep(0.01)
    assert shardq_clock.monotonic() - began < 3000, "the worker has not run the clock ahead"
    shardq_clock.advance(3600)
    assert job.result(timeout=60) == "done"
    worker.stop()
    running.join(60)
    assert not running.is_alive()


def test_an_hour_passes_in_an_event_loop(shardq_async_clocked_queue, shardq_clock):
    tries.clear()

    async def run():
        async with shardq_async_clocked_queue(tasks) as queue, shardq_async_clocked_queue(tasks) as web:
            job = await web.write(patient.call(), shard_key="t", delay=60)
            worker = AsyncWorker(queue, tasks)
            running = asyncio.create_task(worker.run())
            began = shardq_clock.monotonic()
            assert ((await queue.stats()).delayed, tries) == (1, [])
            shardq_clock.advance(60)
            while (await queue.stats()).delayed == 0 or tries != [1]:
                await asyncio.sleep(0.01)
            assert shardq_clock.monotonic() - began < 3000, "the worker has not run the clock ahead"
            shardq_clock.advance(3600)
            assert await job.result(timeout=60) == "done"
            worker.stop()
            await asyncio.wait_for(running, 60)

    asyncio.run(run())
"""
UNUSED = """
import sys


def test_nothing_of_shardq_is_imported():
    assert "pytest_shardq" in sys.modules
    assert [name for name in sys.modules if name.partition(".")[0] in ("shardq", "redis", "msgspec")] == []
"""


def run_in(folder: Path, *words: str) -> str:
    """What a run of pytest in *folder* says; its settings and plugins are not those of this project."""
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    words = ("-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:xdist", "-p", "no:hypothesispytest", *words)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=folder, capture_output=True, text=True, timeout=150,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_fixtures_in_a_project_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "test_app.py").write_text(TESTS)
    assert "6 passed" in run_in(tmp_path)


def test_a_project_without_them_imports_nothing_of_shardq(tmp_path: Path) -> None:
    (tmp_path / "test_unused.py").write_text(UNUSED)
    assert "1 passed" in run_in(tmp_path)
    assert "shardq_server" in run_in(tmp_path, "--fixtures")
