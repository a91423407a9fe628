"""What Django promises of a backend, and what shardq's does besides.

Each class has a server to itself, and each test an empty one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import django
import redis
from asgiref.sync import async_to_sync, sync_to_async

django.setup()

from django.core.exceptions import ImproperlyConfigured  # noqa: E402
from django.core.management import CommandError, call_command  # noqa: E402
from django.db import connection, transaction  # noqa: E402
from django.db.backends.signals import connection_created  # noqa: E402
from django.tasks import Task, TaskResult, TaskResultStatus, default_task_backend, task, task_backends  # noqa: E402
from django.tasks.base import TaskError  # noqa: E402
from django.tasks.exceptions import (  # noqa: E402
    InvalidTask,
    InvalidTaskBackend,
    TaskResultDoesNotExist,
    TaskResultMismatch,
)
from django.test import override_settings  # noqa: E402
from django.utils import timezone, translation  # noqa: E402

import shardq.django  # noqa: E402
from shardq import BackendTimeout, Client, ConfigError, Queue  # noqa: E402
from shardq.django import Backend, options  # noqa: E402
from shardq.django import backend as backends  # noqa: E402
from shardq.django.finding import find_task, known_task  # noqa: E402
from shardq.django.record import ResultRecord, kept_of  # noqa: E402
from shardq.django.results import KeptError  # noqa: E402
from shardq.django.worker import first_tasks  # noqa: E402
from shardq.ops.results.keep import keep  # noqa: E402
from tests.django.site import tasks  # noqa: E402

URL = os.environ["SHARDQ_URL"]
UNLISTED = "tests.django.site.unlisted.wipe"
"""The path of a task in a module that nothing imports."""
READY, RUNNING, FAILED, SUCCESSFUL = (TaskResultStatus[name] for name in ("READY", "RUNNING", "FAILED", "SUCCESSFUL"))
NO_BACKOFF = {"default": {"BACKEND": "shardq.django.Backend", "OPTIONS": {"backoff": lambda failures, random: 0.0}}}


def work(**settings: Any) -> None:
    """Run a worker in this process, until nothing is left to do."""
    call_command("shardq_worker", until="empty", **settings)


def worked_off(result: TaskResult) -> bool:
    """Run a worker, and say whether the call has come to its end."""
    work()
    result.refresh()
    return bool(result.is_finished)


def eventually(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < end, condition
        time.sleep(0.01)
    return found


def configured(**options: Any) -> Any:
    """Other OPTIONS for a while."""
    return override_settings(
        TASKS={"default": {"BACKEND": "shardq.django.Backend", "QUEUES": ["default", "mails"], "OPTIONS": options}}
    )


class Case(unittest.TestCase):
    """A test with an empty server."""

    def setUp(self) -> None:
        self.client = Client.from_url(URL)
        self.addCleanup(self.client.close)
        with redis.Redis.from_url(URL) as server:
            server.flushall()
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    @property
    def queue(self) -> Queue:
        return self.client.queue("default")

    def message_id(self, result: TaskResult) -> str:
        return str(result.id).rpartition(":")[0]

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start a worker as a process."""
        command = [sys.executable, "-m", "django", "shardq_worker", *words]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process


class Contract(Case):
    def test_what_is_known_before_during_and_after(self) -> None:
        before = timezone.now()
        result = tasks.waits.enqueue(str(self.folder))
        self.assertEqual((result.status, result.attempts, result.started_at, result.errors), (READY, 0, None, []))
        self.assertLess(abs(result.enqueued_at - before), timedelta(seconds=10))
        self.assertEqual(tasks.waits.get_result(result.id), result)
        with self.assertRaisesRegex(ValueError, "not finished"):
            _ = result.return_value
        process = self.begin("--until", "empty")
        eventually(lambda: [*self.folder.glob("runs-*")])
        result.refresh()
        self.assertEqual((result.status, result.attempts, result.finished_at), (RUNNING, 1, None))
        self.assertGreaterEqual(result.started_at, result.enqueued_at)
        self.assertIn(f"-{process.pid}-", result.worker_ids[0])
        (self.folder / "go").touch()
        self.assertEqual(process.wait(60), 0)
        asyncio.run(result.arefresh())
        self.assertEqual((result.status, result.return_value, result.attempts), (SUCCESSFUL, "done", 1))
        self.assertEqual(result.args, [str(self.folder)])
        self.assertEqual(result.last_attempted_at, result.started_at)

    def test_another_process_finds_a_result_and_its_task(self) -> None:
        result = tasks.echo.enqueue(1)
        program = (
            "import sys, django; django.setup(); from django.tasks import default_task_backend as backend;"
            "found = backend.get_result(sys.argv[1]); print(found.task.module_path, found.status, found.args)"
        )
        for status in ("READY", "SUCCESSFUL"):
            told = subprocess.run(
                [sys.executable, "-c", program, result.id], capture_output=True, text=True, check=True
            )
            self.assertEqual(told.stdout.strip(), f"tests.django.site.tasks.echo {status} [1]")
            work()

    def test_a_result_of_another_task_is_a_mismatch(self) -> None:
        result = tasks.echo.enqueue()
        for _ in range(2):
            with self.assertRaises(TaskResultMismatch):
                tasks.mail.get_result(result.id)
            with self.assertRaises(TaskResultMismatch):
                asyncio.run(tasks.mail.aget_result(result.id))
            work()

    def test_what_is_no_id_is_no_result(self) -> None:
        tasks.echo.enqueue()
        ids = ["", "x", ":", ":default", "x:default", "1-2-3:default", "1-2-3:mails", "1-2-3:other", "1-2-l:default",
               "1-2-o.a%20b:default", "٣-1-1:default", "9" * 400 + "-1-1:default", "x" * 100_000,
               "\ud800:default", "1-2-3:default\n", 123, None, b"1-2-3:default"]  # fmt: skip
        for each in ids:
            with self.subTest(str(each)[:20]), self.assertRaises(TaskResultDoesNotExist):
                default_task_backend.get_result(each)
            with self.assertRaises(TaskResultDoesNotExist):
                asyncio.run(tasks.echo.aget_result(each))

    def test_run_after(self) -> None:
        ahead = tasks.echo.using(run_after=timezone.now() + timedelta(hours=1)).enqueue()
        past = tasks.echo.using(run_after=timezone.now() - timedelta(hours=1)).enqueue()
        soon = tasks.echo.using(run_after=timezone.now() + timedelta(seconds=1)).enqueue()
        work()
        found = default_task_backend.get_result(ahead.id)
        self.assertEqual((found.status, found.task), (READY, ahead.task))
        self.assertEqual(self.queue.status(self.message_id(ahead)).state, "delayed")
        self.assertEqual(default_task_backend.get_result(past.id).status, SUCCESSFUL)
        self.assertEqual(default_task_backend.get_result(soon.id).status, READY)
        eventually(lambda: worked_off(soon))
        self.assertEqual(soon.status, SUCCESSFUL)
        self.assertGreaterEqual(soon.started_at, soon.task.run_after)

    def test_what_cannot_be_promised_is_refused(self) -> None:
        with self.assertRaisesRegex(InvalidTask, "priority"):
            tasks.echo.using(priority=1)
        with self.assertRaisesRegex(InvalidTask, "aware"):
            tasks.echo.using(run_after=datetime(2099, 1, 1))  # noqa: DTZ001
        with self.assertRaisesRegex(InvalidTask, "within ten years"):
            tasks.echo.using(run_after=datetime(2999, 1, 1, tzinfo=UTC)).enqueue()
        with self.assertRaisesRegex(InvalidTask, "Queue 'other'"):
            tasks.echo.using(queue_name="other")
        with self.assertRaisesRegex(InvalidTask, "module level"):
            task(lambda: None)
        with self.assertRaisesRegex(InvalidTask, "no argument 'nobody'"):
            task(options(shard_key="nobody")(tasks.echo.func.__class__(tasks.echo.func.__code__, vars(tasks), "f")))
        self.assertEqual(self.client.queues(), [])

    def test_without_time_zones_times_are_naive(self) -> None:
        with override_settings(USE_TZ=False):
            result = tasks.echo.using(run_after=datetime.now()).enqueue()  # noqa: DTZ005
            work()
            result.refresh()
            for each in (result.enqueued_at, result.started_at, result.finished_at):
                self.assertTrue(timezone.is_naive(each))
                self.assertLess(abs(each - timezone.now()), timedelta(minutes=1))

    def test_features(self) -> None:
        backend = default_task_backend
        self.assertTrue(backend.supports_defer and backend.supports_async_task and backend.supports_get_result)
        self.assertFalse(backend.supports_priority)
        with configured(result_ttl=None):
            self.assertFalse(task_backends["default"].supports_get_result)
            result = tasks.echo.enqueue()
            work()
            self.assertEqual(self.queue.stats().acked, 1)
            with self.assertRaises(NotImplementedError):
                default_task_backend.get_result(result.id)


class Failures(Case):
    def test_an_error_is_final_and_a_dead_letter(self) -> None:
        result = tasks.fails.enqueue("value")
        work()
        (letter,) = self.queue.dead()
        self.assertEqual(letter.message_id, self.message_id(result))
        self.assertTrue(letter.reason.startswith("ValueError (fails site/tasks.py:"), letter.reason)
        self.assertNotIn("too much", letter.reason)
        result.refresh()
        self.assertEqual((result.status, result.args, result.attempts), (FAILED, ["value"], 1))
        self.assertEqual(result.errors[0].exception_class, ValueError)
        self.assertTrue(result.errors[0].traceback.endswith("ValueError: it was too much\n"))
        with self.assertRaisesRegex(ValueError, "Task failed"):
            _ = result.return_value
        self.queue.delete_dead([letter])
        result.refresh()
        self.assertEqual(result.status, FAILED)

    def test_a_cancelled_error_of_a_task_that_nobody_has_cancelled_is_an_error_as_others(self) -> None:
        result = tasks.raises_cancelled.enqueue()
        self.assertTrue(worked_off(result))
        self.assertEqual((result.status, result.errors[0].exception_class), (FAILED, asyncio.CancelledError))

    def test_a_redrive_is_another_attempt(self) -> None:
        result = tasks.waits.enqueue(str(self.folder / "missing"))
        work()
        result.refresh()
        self.assertEqual((result.status, result.errors[0].exception_class), (FAILED, FileNotFoundError))
        (self.folder / "missing").mkdir()
        (self.folder / "missing" / "go").touch()
        self.queue.redrive(self.queue.dead())
        result.refresh()
        self.assertEqual((result.status, result.finished_at, len(result.errors)), (READY, None, 1))
        work()
        result.refresh()
        self.assertEqual((result.status, result.return_value, result.attempts), (SUCCESSFUL, "done", 2))

    def test_a_redrive_of_what_had_a_result_runs_it_once_more(self) -> None:
        result = tasks.echo.enqueue()
        delivery = self.queue.read()
        record = ResultRecord(path=result.task.module_path).begun("worker", 1).succeeded("noted", 2)
        self.client.run(keep(self.queue.state, [(delivery.received, kept_of(record, self.client.codecs, 65536))]))
        delivery.reject("an operator's reason")
        result.refresh()
        self.assertEqual((result.status, result.errors[0].traceback), (FAILED, "an operator's reason\n"))
        self.queue.redrive(self.queue.dead())
        work()
        result.refresh()
        self.assertEqual((result.status, result.return_value), (SUCCESSFUL, {"args": [], "kwargs": {}}))

    def test_retries(self) -> None:
        with override_settings(TASKS=NO_BACKOFF):
            results = [tasks.flaky.enqueue(fails_for) for fails_for in (0, 2, 3)]
            work()
            for each in results:
                each.refresh()
        self.assertEqual([each.status for each in results], [SUCCESSFUL, SUCCESSFUL, FAILED])
        self.assertEqual([each.attempts for each in results], [1, 3, 3])
        self.assertEqual(results[1].return_value, 3)
        told = [[error.traceback.splitlines()[-1] for error in each.errors] for each in results]
        attempts = [f"ConnectionError: attempt {number}" for number in (1, 2, 3)]
        self.assertEqual(told, [[], attempts[:2], attempts])
        self.assertGreater(results[1].last_attempted_at, results[1].started_at)

    def test_between_two_tries_a_task_is_ready_and_shows_its_error(self) -> None:
        result = tasks.flaky.enqueue(1)
        process = self.begin()
        eventually(lambda: result.refresh() or result.errors)
        if result.status == READY:  # a second and more, by the default backoff
            self.assertEqual((result.attempts, result.finished_at), (1, None))
        eventually(lambda: result.refresh() or result.is_finished)
        self.assertEqual((result.status, result.attempts), (SUCCESSFUL, 2))
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 0)

    def test_a_worker_ends_after_its_grace_whatever_hangs(self) -> None:
        for hanging in (tasks.hangs, tasks.hangs_async):
            with self.subTest(hanging.name):
                hanging.enqueue(str(self.folder))
                process = self.begin("--grace", "0.2")
                eventually(lambda: [*self.folder.glob("runs-*")])
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(60), 0)
                self.assertEqual(self.queue.stats().backlog, 1)
                self.queue.purge()
                for each in self.folder.glob("runs-*"):
                    each.unlink()

    def test_a_worker_that_dies_is_an_attempt_and_no_end(self) -> None:
        with configured(visibility_timeout=1):
            (self.folder / "die").touch()
            (self.folder / "go").touch()
            result = tasks.waits.enqueue(str(self.folder))
            os.environ["SITE_OPTIONS"] = json.dumps({"visibility_timeout": 1})
            self.addCleanup(os.environ.pop, "SITE_OPTIONS")
            self.assertEqual(self.begin("--until", "empty").wait(60), -signal.SIGKILL)
            eventually(lambda: worked_off(result))
        self.assertEqual((result.status, result.return_value, result.attempts), (SUCCESSFUL, "done", 2))
        self.assertEqual(len(set(result.worker_ids)), 2)

    def test_a_task_that_takes_too_long_has_failed(self) -> None:
        result = tasks.waits.enqueue(str(self.folder))
        self.addCleanup((self.folder / "go").touch)
        timer = threading.Timer(20, (self.folder / "go").touch)
        timer.start()
        work(time_limit=0.2, grace=0)
        timer.cancel()
        (self.folder / "go").touch()
        result.refresh()
        self.assertEqual((result.status, len(result.errors)), (FAILED, 1))
        self.assertIn("TimeLimit", result.errors[0].traceback)
        self.assertEqual(result.errors[0].exception_class.__name__, "MessageDead")

    def test_what_never_ran_has_failed_with_the_reason(self) -> None:
        result = tasks.echo.enqueue()
        self.queue.read().reject("an operator's reason")
        result.refresh()
        self.assertEqual((result.status, result.attempts), (FAILED, 0))
        self.assertEqual(result.errors[0].traceback, "an operator's reason\n")

    def test_a_worker_that_dies_between_the_note_and_the_settling_has_nothing_done_twice(self) -> None:
        """As what such a worker leaves shows: the task itself would return or raise something else."""
        found = []
        for is_done in (True, False):
            each = tasks.echo.enqueue()
            found.append(each)
            record = ResultRecord(path=each.task.module_path).begun("dead worker", 1)
            record = record.succeeded("noted", 2) if is_done else record.failed(OSError("noted"), 2, is_last=True)
            delivery = self.queue.read()
            kept = kept_of(record, self.client.codecs, 65536)
            self.client.run(keep(self.queue.state, [(delivery.received, kept)]))
            each.refresh()
            self.assertEqual(each.status, RUNNING, "it is not settled")
            delivery.nack()
            each.refresh()
            self.assertEqual((each.status, each.finished_at), (READY, None))
            work()
        done, failed = found
        done.refresh()
        self.assertEqual((done.status, done.return_value, done.attempts), (SUCCESSFUL, "noted", 1))
        failed.refresh()
        self.assertEqual((failed.status, failed.attempts, failed.errors[0].exception_class), (FAILED, 1, OSError))
        self.assertEqual(
            [each.reason for each in self.queue.dead()], ["builtins.OSError, as the delivery before noted"]
        )

    def test_what_was_taken_away_is_no_result(self) -> None:
        waiting, running = tasks.echo.enqueue(), tasks.flaky.enqueue(1)
        self.queue.cancel(self.message_id(waiting))
        delivery = self.queue.read()
        record = ResultRecord(path=running.task.module_path).begun("worker", 1).failed(OSError(), 2, is_last=False)
        self.client.run(keep(self.queue.state, [(delivery.received, kept_of(record, self.client.codecs, 65536))]))
        delivery.nack(delay=100)
        running.refresh()
        self.assertEqual((running.status, running.attempts, len(running.errors)), (READY, 1, 1))
        self.queue.cancel(self.message_id(running))
        self.assertEqual(self.queue.status(self.message_id(running)).state, "unknown", "a note is no result")
        for each in (waiting, running):
            with self.assertRaises(TaskResultDoesNotExist):
                each.refresh()

    def test_a_result_goes_when_its_time_is_over(self) -> None:
        with configured(result_ttl=1):
            result = tasks.echo.enqueue()
            work()

            def is_gone() -> bool:
                try:
                    result.refresh()
                except TaskResultDoesNotExist:
                    return True
                return False

            eventually(is_gone)

    def test_large_arguments_and_results(self) -> None:
        with configured(max_result_size=2000):
            args, value = tasks.fails.enqueue("x" * 5000), tasks.echo.enqueue("x" * 5000)
            small = tasks.mail.using(queue_name="default").enqueue(to="a" * 1500)
            work()
            args.refresh()
            self.assertEqual((args.status, args.args), (FAILED, ["x" * 5000]), "the dead letter has them")
            self.assertEqual(args.errors[0].exception_class, KeyError)
            with self.assertRaisesRegex(TaskResultDoesNotExist, "not kept"):
                value.refresh()
            small = tasks.mail.using(queue_name="default").get_result(small.id)
            self.assertEqual((small.status, small.kwargs, small.return_value), (SUCCESSFUL, {}, "to " + "a" * 1500))

    def test_redis_away(self) -> None:
        result = tasks.echo.enqueue()
        with configured(url="redis://127.0.0.1:1", timeout=0.05):
            for call in (partial(tasks.echo.enqueue, 1), partial(default_task_backend.get_result, result.id)):
                with self.assertRaises(BackendTimeout):
                    call()
            with self.assertRaises(BackendTimeout):
                asyncio.run(tasks.echo.aenqueue(1))


class Keys(Case):
    """Of dicts: JSON would make text of all."""

    def test_a_key_that_is_no_text_is_refused_where_it_is_written(self) -> None:
        for value in ({1: "a"}, {"a": [{None: 1}]}, {True: 1}):
            with self.subTest(value), self.assertRaisesRegex(TypeError, "Unsupported type of a key"):
                tasks.echo.enqueue(value)
        self.assertEqual(self.client.queues(), [])

    def test_so_is_that_of_a_result(self) -> None:
        result = tasks.keyed.enqueue()
        self.assertTrue(worked_off(result))
        self.assertEqual((result.status, result.errors[0].exception_class), (FAILED, TypeError))


class Strangers(Case):
    """What others write into the queue."""

    def test_a_path_in_a_message_imports_nothing(self) -> None:
        from tests.django.site import listed  # the project has imported it

        paths = [
            UNLISTED, f"{listed.__name__}.other", "tests.django.site.listed.counted.func",
            "antigravity.fly", "this.s", "tests.django.site.tasks.query", "tests.django.site.tasks.Path",
            "tests.django.site.tasks.renamed", "tests.django.site.missing.task", "tests.django.missing.task", "task",
            "", ".", "os.system",
        ]  # fmt: skip
        for path in paths:
            self.assertIsNone(find_task(path), path)
            self.assertIsNone(known_task(path, ()), path)
        self.assertTrue({"antigravity", "this", UNLISTED.rpartition(".")[0]}.isdisjoint(sys.modules))

    def test_a_call_of_what_is_in_no_list_is_a_dead_letter_that_says_why(self) -> None:
        queue = self.client.queue("default", create=True, result_ttl=86400)
        message_id = queue.write([UNLISTED, {"call": "{}"}], shard_key="t")
        work()
        self.assertEqual(queue.status(message_id).state, "delayed", "another release may know it, for an hour")
        long_ago = round(time.time()) - 3601
        again = queue.write([UNLISTED, {"call": "{}"}], shard_key="u")
        queue.nack_many([queue.read()], counted=False, error=f"unknown since {long_ago}: no such task")
        work()
        (letter,) = queue.dead()
        self.assertEqual(letter.message_id, again)
        self.assertIn(f"no task '{UNLISTED}' here: workers know the modules named tasks of the apps", letter.reason)
        for each in (message_id, again):
            with self.assertRaisesRegex(TaskResultDoesNotExist, "not known here"):
                default_task_backend.get_result(f"{each}:default")
        self.assertNotIn(UNLISTED.rpartition(".")[0], sys.modules)

    def test_a_module_of_another_name_is_listed(self) -> None:
        program = (
            "import sys, django; django.setup(); from django.tasks import default_task_backend as backend;"
            "found = backend.get_result(sys.argv[1]); print(found.task.module_path, found.status)"
        )
        name = "tests.django.site.listed"
        message_id = self.client.queue("default", create=True, result_ttl=86400).write(
            [f"{name}.counted", {"call": '{"args": [1]}'}], shard_key="t"
        )
        options = json.dumps({"tasks": [name]})
        worker = [sys.executable, "-m", "django", "shardq_worker", "--until", "empty"]
        for command in (worker, [sys.executable, "-c", program, f"{message_id}:default"]):
            told = subprocess.run(
                command, capture_output=True, text=True, timeout=60, env=os.environ | {"SITE_OPTIONS": options}
            )
            self.assertEqual(told.returncode, 0, told.stderr)
        self.assertEqual(told.stdout.strip(), f"{name}.counted SUCCESSFUL")
        with configured(tasks=["tests.django.site.missing"]), self.assertRaisesRegex(CommandError, "OPTIONS.*missing"):
            work()

    def test_the_class_of_an_error_is_found_and_not_imported(self) -> None:
        for path, found in (
            ("builtins.OSError", OSError),
            ("tests.django.site.contract.Strangers.Inner", Strangers.Inner),
            (UNLISTED.replace("wipe", "Boom"), None),
            ("antigravity.Error", None), ("os.system", None), ("builtins.int", None), ("", None), ("." * 5000, None),
            ("tests.django.site.listed.other", None),
        ):  # fmt: skip
            error = KeptError(exception_class_path=path, traceback="")
            self.assertIsInstance(error, TaskError)
            if found is not None:
                self.assertIs(error.exception_class, found)
                continue
            with self.assertRaisesRegex(ValueError, "is no class of errors that was imported here"):
                _ = error.exception_class
        self.assertTrue({"antigravity", UNLISTED.rpartition(".")[0]}.isdisjoint(sys.modules))

    class Inner(Exception):
        """A class in another one."""

    def test_messages_that_are_no_calls_harm_nobody(self) -> None:
        queue = self.client.queue("default", create=True, result_ttl=86400)
        path = "tests.django.site.tasks.echo"
        payloads = [
            "text", b"\xff", 1, None, [path], [path, {}], [path, {"call": 1}], [path, {"call": "{"}],
            [path, {"call": "[]"}], [path, {"call": '{"args": 1}'}], [path, {"call": '{"kwargs": []}'}],
            [path, {"call": '{"run_after": 1}'}],
            [path, {"call": "[" * 100_000}], [path, {"call": "{}", "more": 1}],
            ["os.system", {"call": '{"args": ["x"]}'}],
        ]  # fmt: skip
        ids = [str(queue.write(each, shard_key="t")) for each in payloads]
        plain = str(queue.write([path, {"call": "{}"}], shard_key="t"))
        work()
        found = default_task_backend.get_result(f"{plain}:default")
        self.assertEqual((found.status, found.return_value), (SUCCESSFUL, {"args": [], "kwargs": {}}))
        for each, payload in zip(ids, payloads, strict=True):
            with self.subTest(str(payload)[:40]), contextlib.suppress(TaskResultDoesNotExist):
                self.assertIn(default_task_backend.get_result(f"{each}:default").status, (FAILED, READY))

    def test_a_task_that_is_unknown_here_may_be_known_elsewhere(self) -> None:
        queue = self.client.queue("default", create=True)
        message_id = queue.write(["tests.django.site.tasks.newer", {"call": "{}"}], shard_key="t")
        work()
        self.assertEqual(queue.status(message_id).state, "delayed")
        with self.assertRaisesRegex(TaskResultDoesNotExist, "not known here"):
            default_task_backend.get_result(f"{message_id}:default")


class Tenants(Case):
    def key_of(self, task: Task, *args: Any, **kwargs: Any) -> object:
        result = task.enqueue(*args, **kwargs)
        self.assertLess(len(result.id), 64)
        self.assertEqual(task.get_result(result.id), result)
        return self.client.queue(task.queue_name).status(self.message_id(result)).shard_key

    def test_whose_a_call_is(self) -> None:
        self.assertEqual(self.key_of(tasks.report, 1, "acct-7"), "acct-7")
        self.assertEqual(self.key_of(tasks.report, 1, account=42), "42")
        self.assertEqual(self.key_of(tasks.report, first=1), self.key_of(tasks.report, 1, ""))
        with configured(shard_key="to"):
            self.assertEqual(self.key_of(tasks.mail, "bob"), "bob")
            self.assertEqual(self.key_of(tasks.mail, to="eve"), "eve")
            self.assertEqual(self.key_of(tasks.report, 1, "acct-7"), "acct-7")
            self.assertNotEqual(self.key_of(tasks.echo), self.key_of(tasks.seen))

    def test_any_text_makes_a_key_and_an_id(self) -> None:
        texts = ["a" * 5000, "ä" * 50, "\ud800", "a b", "\0", ":", "a:b/c", "%", "~", "org/acct", "x" * 26, "x" * 27,
                 "8f14e45f-ceea-467f-ab1a-5fa1bbe0a8c2"]  # fmt: skip
        with configured(max_in_flight=1):  # those behind the first wait in the overflow, and have the key in the id
            keys = [self.key_of(tasks.report, 1, each) for each in texts for _ in range(3)]
        self.assertEqual(len(set(keys)), len(texts))
        self.assertIn("org/acct", keys)
        work()
        self.assertEqual(self.queue.stats().acked, len(keys))


class Workers(Case):
    def test_connections_to_the_database_are_fit(self) -> None:
        made: list[object] = []

        def note(**values: Any) -> None:
            made.append(values["connection"])

        connection_created.connect(note)
        self.addCleanup(connection_created.disconnect, note)
        results = [tasks.asks_database.enqueue() for _ in range(3)] + [tasks.asks_database_async.enqueue()]
        work(concurrency=1, queue=["default"])
        for each in results:
            each.refresh()
            self.assertEqual(each.status, SUCCESSFUL, each.errors)
        self.assertEqual(len(made), 4, "CONN_MAX_AGE is 0: each task has a connection of its own, as a request has")
        self.assertTrue(all(each.connection is None for each in cast("list[Any]", made)), "and none is left open")

    def test_on_commit(self) -> None:
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            transaction.on_commit(partial(tasks.echo.enqueue, 1))
            raise ZeroDivisionError
        self.assertEqual(self.client.queues(), [])
        with transaction.atomic():
            transaction.on_commit(partial(tasks.echo.enqueue, 2))
            self.assertEqual(self.client.queues(), [])
        self.assertEqual(self.queue.len(), 1)
        connection.close()

    def test_one_worker_reads_all_queues_or_some(self) -> None:
        one, two = tasks.echo.enqueue(), tasks.mail.enqueue("bob")
        work(queue=["mails"])
        one.refresh()
        two.refresh()
        self.assertEqual((one.status, two.status), (READY, SUCCESSFUL))
        self.assertEqual(two.task, tasks.mail)
        work()
        one.refresh()
        self.assertEqual(one.status, SUCCESSFUL)
        with self.assertRaisesRegex(CommandError, "no 'other'"):
            work(queue=["other"])
        with self.assertRaisesRegex(CommandError, "doesn't exist"):
            work(backend="missing")

    def test_shardq_worker_finds_the_settings(self) -> None:
        one, two = tasks.echo.enqueue("a secret"), tasks.mail.enqueue("bob")
        command = [sys.executable, "-m", "shardq.cli", "worker", "--until", "empty"]
        for name in ("tasks", "tasks.mails"):
            told = subprocess.run([*command, f"shardq.django:{name}"], capture_output=True, text=True, timeout=60)
            self.assertEqual(told.returncode, 0, told.stderr)
            self.assertIn("1 done, 0 failed", told.stderr)
            self.assertNotIn("secret", told.stderr)
        for each in (one, two):
            each.refresh()
            self.assertEqual(each.status, SUCCESSFUL)
        for words, environment, text in (
            (["shardq.django:tasks.other"], {}, "no function and no tasks 'tasks.other'"),
            (["shardq.django:tasks"], {"DJANGO_SETTINGS_MODULE": ""}, "DJANGO_SETTINGS_MODULE=shop.settings"),
            (
                ["shardq.django:tasks"],
                {"SITE_BACKEND": "django.tasks.backends.dummy.DummyBackend"},
                "not shardq.django",
            ),
            (["shardq.django:tasks", "--run-in", "processes"], {}, "without run_in"),
        ):
            told = subprocess.run(
                [*command, *words], capture_output=True, text=True, timeout=60, env=os.environ | environment
            )
            self.assertEqual((told.returncode, told.stderr.count("Traceback")), (2, 0), told.stderr)
            self.assertIn(text, told.stderr)
        self.assertEqual(first_tasks().queue_name, "default")

    def test_no_task_speaks_the_language_that_another_one_has_left(self) -> None:
        for speaks in (tasks.speaks, tasks.speaks_async):
            with self.subTest(speaks.name):
                results = [speaks.enqueue("de") for _ in range(5)]
                work(concurrency=2)
                for each in results:
                    each.refresh()
                self.assertEqual({each.return_value for each in results}, {translation.get_language()})

    def test_an_async_test_runs_a_worker(self) -> None:
        async def test() -> TaskResult:
            result = await tasks.echo_async.aenqueue(1)
            await sync_to_async(work)()
            await result.arefresh()
            return result

        self.assertEqual(async_to_sync(test)().status, SUCCESSFUL)

    def test_a_worker_for_another_server_says_so(self) -> None:
        command = [sys.executable, "-m", "shardq.cli", "worker", "--until", "empty", "shardq.django:tasks"]
        options = json.dumps({"url": "redis://127.0.0.1:1"})
        told = subprocess.run(
            command, capture_output=True, text=True, timeout=60, env=os.environ | {"SITE_OPTIONS": options}
        )
        self.assertIn("but Django's settings write to", told.stderr)

    def test_options(self) -> None:
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"url": "localhost"}, "url"), ({"streams": "many"}, "streams"), ({"stream": 4}, "'stream'"),
            ({"retries": -1}, "retries"), ({"retries": 16}, "max_deliveries"), ({"backoff": 1}, "backoff"),
            ({"prefix": "a b"}, "may not hold ' '"), ({"queues": {"x": {}}}, "'x'"),
            ({"queues": {"mails": {"weight": 0}}}, "weight"),
            ({"queues": {"mails": {"max_deliveries": 1}}}, "max_deliveries"), ({"queues": 1}, "queues"),
            ({"timeout": "long"}, "timeout"), ({"shard_key": 1}, "shard_key"),
        ]  # fmt: skip
        for each, text in wrong:
            with self.subTest(each), configured(**each), self.assertRaisesRegex(InvalidTaskBackend, text):
                task_backends["default"]
        good: dict[str, Any] = {"prefix": "shop-", "streams": 4, "queues": {"mails": {"weight": 3, "rate": 5}}}
        with configured(**good):
            tasks.mail.enqueue("bob")
            tasks.echo.enqueue()
            self.assertEqual(self.client.queues(), ["shop-default", "shop-mails"])
            self.assertEqual(len(self.client.queue("shop-mails").stats().streams), 4)
            work()
            self.assertEqual(self.client.queue("shop-mails").stats().acked, 1)
        for queues, text in ((["a" * 21], "20 characters"), (["a:b"], "colon")):
            with override_settings(TASKS={"default": {"BACKEND": "shardq.django.Backend", "QUEUES": queues}}):
                self.assertRaisesRegex(ImproperlyConfigured, text, lambda: task_backends["default"].alias)
        with self.assertRaises(ConfigError):
            options(retries=-1)

    def test_checks(self) -> None:
        self.assertEqual(default_task_backend.check(), [])
        with override_settings(TASKS={"default": {"BACKEND": "shardq.django.Backend", "QUEUES": []}}):
            (warning,) = default_task_backend.check()
            self.assertEqual(warning.id, "shardq.W001")
            with self.assertRaisesRegex(CommandError, "--queue"):
                work()
            result = tasks.echo.using(queue_name="any").enqueue()
            work(queue=["any"])
            self.assertEqual(tasks.echo.using(queue_name="any").get_result(result.id).status, SUCCESSFUL)

    def test_what_the_package_exports(self) -> None:
        self.assertEqual(shardq.django.__all__, sorted(shardq.django.__all__))
        for name in shardq.django.__all__:
            self.assertTrue(hasattr(shardq.django, name), name)
        self.assertFalse(hasattr(shardq.django, "other"))

    def test_all_threads_share_one_client(self) -> None:
        def enqueue() -> None:
            tasks.echo.enqueue()

        tasks.echo.enqueue()
        before = len(backends._clients)
        threads = [threading.Thread(target=enqueue) for _ in range(20)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertIsInstance(task_backends["default"], Backend)
        self.assertEqual(self.queue.len(), 21)
        self.assertEqual(len(backends._clients), before)


if __name__ == "__main__":
    unittest.main()
