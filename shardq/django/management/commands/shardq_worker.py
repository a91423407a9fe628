"""`manage.py shardq_worker`: run the tasks of a backend, in all its queues or some."""

from __future__ import annotations

import os
from contextvars import Context
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from shardq import __version__
from shardq.client import Client
from shardq.django.backend import Backend
from shardq.django.worker import DjangoTasks, backend_of
from shardq.drivers import Target
from shardq.errors import ConfigError
from shardq.worker import Worker
from shardq.worker.ending import leave
from shardq.worker.plan import PlanSettings
from shardq.worker.process_one import go_on_below


class Command(BaseCommand):
    """Run tasks until SIGTERM or Ctrl-C; tasks that run then have --grace seconds to finish."""

    help = "Run the tasks that shardq.django.Backend keeps in Redis, until SIGTERM or Ctrl-C."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("--backend", default="default", metavar="ALIAS", help="which of TASKS (default)")
        parser.add_argument("--queue", action="append", metavar="NAME", help="only this queue; may be given again")
        parser.add_argument(
            "-c", "--concurrency", type=int, default=64, metavar="N", help="tasks that run at once (64)"
        )
        parser.add_argument("--time-limit", type=float, metavar="S", help="seconds after which a task has failed")
        parser.add_argument("--grace", type=float, default=25.0, metavar="S", help="seconds to finish at the end (25)")
        parser.add_argument("--alive-file", metavar="PATH", help="a file to touch each second while it does not hang")
        parser.add_argument("--until", choices=("empty",), help="end when nothing is left to do")

    def handle(self, *args: Any, **options: Any) -> None:
        """Work."""
        if self._called_from_command_line:  # else the process is somebody else's, as in a test
            go_on_below()
        settings: PlanSettings = {
            "concurrency": options["concurrency"],
            "time_limit": options["time_limit"],
            "grace": options["grace"],
            "alive": options["alive_file"],
            "until": options["until"],
            "signals": True,
        }
        try:
            backend = backend_of(options["backend"])
            names = options["queue"] or backend.names
            if not names:
                raise CommandError("QUEUES of Django's settings names no queue: use --queue NAME")
            if wrong := [name for name in names if backend.names and name not in backend.names]:
                raise CommandError(f"QUEUES of Django's settings have no {wrong[0]!r}")
            # In no context of the caller: in an async test, sync_to_async would wait for that test's thread.
            Context().run(self._work, backend, names, settings)
        except ConfigError as error:
            raise CommandError(str(error)) from error

    def _work(self, backend: Backend, names: list[str], settings: PlanSettings) -> None:
        url, tasks = backend.settings.url, DjangoTasks(backend, names[0])
        with Client.from_url(url, timeout=backend.settings.timeout) as client:
            queues = {
                client.queue(backend.settings.name_of(name), create=True, **backend.settings.settings_of(name)):
                backend.settings.weights.get(name, 1)
                for name in dict.fromkeys(names)
            }  # fmt: skip
            worker = Worker(queues, tasks, **settings)
            told = ", ".join(f"{queue.name!r}" for queue in queues)
            self._say(f"worker {os.getpid()}, version {__version__}: queues {told} at {Target.parse(url)}")
            worker.run()
        done = worker.tally
        self._say(f"worker {os.getpid()} ended: {done['ack']:,} done, {done['nack'] + done['reject']:,} failed")
        if self._called_from_command_line:  # else the process is somebody else's, as in a test
            leave(lambda: worker.hangs)

    def _say(self, text: str) -> None:
        self.stderr.write(f"shardq: {text}", lambda line: line)  # no error, so not in red
