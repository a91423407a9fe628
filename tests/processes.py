"""The processes of a test run: how many run tests, and that none outlives the run.

`make test` runs the tests in several processes (pytest-xdist). Whatever a test starts inherits a variable that names
the run: at its end nothing with it may be left, and if the run itself is killed, a watchdog ends what is.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Generator, Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.outcomes import break_run
from tests.selection import COMMAND, REPEAT
from tests.waiting import eventually

RUN = "SHARDQ_TEST_RUN"
MOST = 8  # each starts servers of its own
GRACE = float(os.environ.get("SHARDQ_TEST_GRACE", "15"))  # seconds: one that was told to end may take so long

# As a program it is the watchdog of the run that it is given: its standard input ends when the run does.
_WATCH = "import sys; from tests import processes; sys.stdin.read(); processes.end(sys.argv[1])"
_watchdog: subprocess.Popen[bytes] | None = None


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Two more than the cores, as tests wait a lot; none where files or tests are named, or output is not captured.

    None leaves it to PYTEST_XDIST_AUTO_NUM_WORKERS.
    """
    named = all(Path(name.partition("::")[0]).is_file() for name in config.args)
    if named or config.option.capture == "no":
        return 0
    chosen = os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS")
    return None if chosen else min(MOST, (os.cpu_count() or 1) + 2)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """What tests wait for is started once: see `Sharing`."""
    return Sharing(config, log)


class Sharing(LoadScopeScheduling):
    """Gives a process the next function with all of its cases, the long ones first, and to one process all of Spark.

    Spark takes 10 s to start, and gigabytes. Its pipelines have a second one when all tests run.
    """

    def remove_node(self, node: WorkerController) -> str | None:
        """Forget a process that ended. Return the test in which it died, if it did.

        Nothing that was run is given to another one: xdist would let that test end the next process, too, and would
        have one wait for ever to which it gave nothing but what is done.
        """
        work = self.assigned_work[node]
        left = [(unit, test) for unit in work.values() for test, done in unit.items() if not done]
        for unit, test in left[:1]:
            unit[test] = True
        self.assigned_work[node] = {scope: unit for scope, unit in work.items() if not all(unit.values())}
        super().remove_node(node)
        return left[0][1] if left else None

    def schedule(self) -> None:
        """Give out work. A process begins a test when it has the next one: one that comes later needs two, too."""
        super().schedule()
        for node in self.nodes:
            self._reschedule(node)

    def _split_scope(self, nodeid: str) -> str:
        path, _, rest = nodeid.partition("::")
        if path.startswith("tests/spark/"):
            return "pipelines" if path.startswith("tests/spark/pipelines/") and COMMAND != "test" else "spark"
        return nodeid if REPEAT in os.environ else f"{path}::{rest.partition('[')[0]}"


def pytest_configure() -> None:
    """Heed signals, and name the run, unless it is a part of one."""
    global _watchdog
    _heed_signals()
    if RUN in os.environ or sys.platform != "linux":
        return
    run = uuid.uuid4().hex
    command = [sys.executable, "-c", _WATCH, run]
    root = Path(__file__).parents[1]
    _watchdog = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=root, start_new_session=True)
    os.environ[RUN] = run


def _heed_signals() -> None:
    """What a shell put into the background ignores SIGINT, and so would every process that a test starts.

    SIGHUP stays as it is: who runs the tests under nohup wants them to go on, and no test sends it.
    """
    if threading.current_thread() is threading.main_thread():
        for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
            if signal.getsignal(number) is signal.SIG_IGN:
                signal.signal(number, usual)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected lives as long as the run: the collector of garbage, which would look at it again and again
    (a quarter of the time that collecting takes, a twentieth of the tests'), leaves it alone."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def signals_stay(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that changes what a signal does would change it for all that come after it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)
            pytest.fail(f"{request.node.name}: the test has changed what {number.name} does")


@pytest.hookimpl(trylast=True)  # the processes that ran tests have ended
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run if a process is left, and end it."""
    global _watchdog
    if _watchdog is None:
        return
    watchdog, _watchdog, run = _watchdog, None, os.environ.pop(RUN)
    with contextlib.suppress(AssertionError):
        eventually(lambda: not _strays(run), GRACE, every=0.02)
    if found := _strays(run):
        break_run(session, f"processes that the tests left behind: {found}")
    watchdog.communicate(timeout=60)


def _strays(run: str) -> dict[int, str]:
    """The processes that are left, without the tracker that multiprocessing keeps for this one: they end together."""
    tracker = getattr(resource_tracker, "_resource_tracker", None)
    return {pid: command for pid, command in left(run).items() if pid != getattr(tracker, "_pid", None)}


def left(run: str) -> dict[int, str]:
    """The processes of `run` other than the one that named it, with their commands."""
    mark = f"{RUN}={run}".encode()
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile, or is not ours
            if mark in (place / "environ").read_bytes().split(b"\0"):
                words = (place / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(place.name)] = words.decode(errors="replace").strip()[:200]
    return found


def end(run: str) -> None:
    """Kill what is left of `run`, and what that starts meanwhile."""
    while pids := left(run):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
