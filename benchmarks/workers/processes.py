"""The worker's process group and the process that enqueues, and their CPU times. Linux only: it reads /proc."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.settings import ROOT
from benchmarks.workers.contenders import Contender
from benchmarks.workers.environments import programs
from shardq.embedded.child import ChildProcess

_TICK = os.sysconf("SC_CLK_TCK")


def _variables(contender: Contender, url: str) -> dict[str, str]:
    modules = {"NODE_PATH": str(programs(contender).parent / "node_modules")} if contender.node else {}
    return {"BENCH_URL": url, "RQ_REDIS_URL": url, "PYTHONPATH": str(ROOT), **modules, **contender.variables}


class Worker:
    """One worker process and its children; it can be paused."""

    def __init__(self, contender: Contender, url: str) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the worker)
        words = [f"{name}={value}" for name, value in _variables(contender, url).items()]
        command = [str(programs(contender) / contender.command[0]), *contender.command[1:]]
        self._process = ChildProcess(["/usr/bin/env", *words, *command], directory=ROOT, log=self._log.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            error.add_note(f"the end of the worker's log:\n{self.log()}")
        self.signal(signal.SIGKILL)
        self._process.end()
        self._log.close()

    def log(self) -> str:
        """The end of what it wrote."""
        self._log.seek(0)
        return self._log.read()[-3000:].decode(errors="replace")

    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.running()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it and its children: it leads a group of its own."""
        if self.running():
            os.killpg(self._process.pid, number)

    def pause(self) -> None:
        """SIGSTOP, and wait until every thread is stopped: on a busy machine one may run on for some ms."""
        self.signal(signal.SIGSTOP)
        while any(state not in "TZX" for state in self._states()):
            time.sleep(0.001)

    def _states(self) -> Iterator[str]:
        for fields in map(_fields, Path("/proc").glob("[0-9]*/task/[0-9]*/stat")):
            if fields and int(fields[3]) == self._process.pid:
                yield fields[0]

    def cpu(self) -> float:
        """CPU seconds of it and its children, those that ended too."""
        spent = 0.0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            fields = _fields(stat)
            if fields and int(fields[3]) == self._process.pid:
                spent += _clock(int(stat.parent.name)) + sum(map(int, fields[13:15])) / _TICK
        return spent


class Workers:
    """Several such processes, as one."""

    def __init__(self, contender: Contender, url: str, processes: int) -> None:
        self._contender, self._url, self._processes = contender, url, processes
        self._stack = ExitStack()
        self._workers: list[Worker] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._workers = [stack.enter_context(Worker(self._contender, self._url)) for _ in range(self._processes)]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def running(self) -> bool:
        """Whether none has ended."""
        return all(each.running() for each in self._workers)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all."""
        for each in self._workers:
            each.signal(number)

    def pause(self) -> None:
        """SIGSTOP, and wait until all are stopped."""
        for each in self._workers:
            each.pause()

    def cpu(self) -> float:
        """CPU seconds of all."""
        return sum(each.cpu() for each in self._workers)


def _clock(pid: int) -> float:
    """CPU seconds of a process by the kernel's clock, since the ticks of `stat` are 10 ms."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:  # it ended meanwhile
        return 0.0


def _fields(stat: Path) -> list[str]:
    """What /proc tells of a process or thread after its name: state, parent, group, session ..."""
    try:
        return stat.read_text().rpartition(")")[2].split()
    except OSError:  # it ended meanwhile
        return []


class Enqueuer:
    """The process that enqueues."""

    def __init__(self, contender: Contender, url: str) -> None:
        self._process = subprocess.Popen(
            [programs(contender) / contender.enqueuer[0], *contender.enqueuer[1:]],
            cwd=ROOT, env={**os.environ, **_variables(contender, url)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def enqueue(self, number: int, payload: str) -> dict[str, float]:
        """Seconds by the clock and of CPU that it took."""
        orders, answers = self._process.stdin, self._process.stdout
        assert orders is not None
        assert answers is not None
        orders.write(f"{number} {payload}\n")
        orders.flush()
        line = answers.readline()
        if not line:
            raise RuntimeError("the process that enqueues ended; it says why above")
        told: dict[str, float] = json.loads(line)
        return told
