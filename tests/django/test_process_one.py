"""`manage.py shardq_worker` as process 1, as in a container."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from shardq import Client
from tests.django.conftest import ROOT, Run
from tests.parts import APPS_BIN, AS_PROCESS_ONE, NAMESPACES
from tests.waiting import eventually
from tests.worker.program import children_of

pytestmark = [pytest.mark.once, pytest.mark.runs_in("test-all"), NAMESPACES.needed]


def test_what_tasks_leave_is_waited_for_and_a_signal_ends_it(run: Run, site: dict[str, str], url: str) -> None:
    told = run(
        "django",
        "shell",
        "-v",
        "0",
        "-c",
        "from tests.django.site.tasks import leaves; leaves.enqueue(); leaves.enqueue()",
    )
    assert told.returncode == 0, told.stderr
    command = [*AS_PROCESS_ONE, str(APPS_BIN / "python"), "-m", "django", "shardq_worker"]
    with Client.from_url(url) as client, subprocess.Popen(command, cwd=ROOT, env=site) as process:
        try:
            eventually(lambda: client.queue("default").stats().acked == 2, 30)
            (one,) = children_of(process.pid)
            eventually(lambda: len(children_of(one)) == 1, what="only the worker is left")
            os.kill(one, signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
