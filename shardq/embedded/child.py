"""A child process that cannot outlive this one, however this one ends.

On Linux the kernel kills it (PR_SET_PDEATHSIG). The child requests this itself, in a few lines of Python that then
execute the server: `preexec_fn` is unsafe in a process with threads, and would run the fork hooks of all libraries. On
other systems, and if `sys.executable` is not a Python, a watchdog process waits for the end of a pipe that only this
process holds open.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

from shardq.platforms import after_fork

_Process = subprocess.Popen[bytes]

# If the parent died before the call of prctl, the child has another parent already, hence the comparison.
_TIED = """
import ctypes, os, sys
if ctypes.CDLL(None).prctl(1, ctypes.c_ulong(9)): sys.exit("prctl(PR_SET_PDEATHSIG) was refused")
if os.getppid() != int(sys.argv[1]): sys.exit("the parent died first")
os.execv(sys.argv[2], sys.argv[2:])
"""
# A line on stdin means that the server was stopped; the end of the pipe means that the parent died.
_WATCHDOG = 'read -r _ || kill -9 "$0"'


class ChildProcess:
    """A process started with `command`; its output goes to the file `log`, and it inherits the open files `keep`."""

    def __init__(self, command: Sequence[str], *, directory: Path, log: int, keep: Sequence[int] = ()) -> None:
        by_kernel = _kernel_can()
        tied = [sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid())] if by_kernel else []

        def spawn() -> _Process:
            # It has a session of its own, because Ctrl-C in the terminal must only stop the workers, which need the
            # server to drain.
            return subprocess.Popen(  # noqa: S603 (the program was found and probed)
                [*tied, *command],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=keep,
                start_new_session=True,
            )

        self._process = _on_keeper(spawn)
        self._watchdog = None if by_kernel else _watch(self._process.pid)
        if self._watchdog:
            _WATCHED.add(self._watchdog)

    @property
    def pid(self) -> int:
        """The process id, also after the process ended."""
        return self._process.pid

    def running(self) -> bool:
        """Whether the process has not ended yet."""
        return self._process.poll() is None

    def end(self, grace: float = 0) -> None:
        """Kill the process and wait for its end; with a `grace` (seconds), send SIGTERM and wait that long before."""
        if grace:
            self._process.send_signal(signal.SIGTERM)
            self._process.send_signal(signal.SIGCONT)  # a suspended process would not get SIGTERM
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace)
        self._process.kill()
        self._process.wait()
        watchdog, self._watchdog = self._watchdog, None
        if watchdog:
            watchdog.communicate(b"\n")


def _kernel_can() -> bool:
    python = Path(sys.executable or "").name.startswith(("python", "pypy")) and not hasattr(sys, "frozen")
    return sys.platform == "linux" and python


def _watch(pid: int) -> _Process:
    quiet = subprocess.DEVNULL
    command = ["/bin/sh", "-c", _WATCHDOG, str(pid)]
    return subprocess.Popen(  # noqa: S603 (a fixed script)
        command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True
    )


class _Keeper(threading.Thread):
    """Starts the processes: the kernel sends PDEATHSIG when the *thread* ends that did, and this one never ends."""

    def __init__(self) -> None:
        super().__init__(name="shardq-keeper", daemon=True)
        self.todo: queue.SimpleQueue[tuple[Callable[[], _Process], Future[_Process]]] = queue.SimpleQueue()
        self.start()

    def run(self) -> None:
        while True:
            _fulfil(*self.todo.get())


def _fulfil(spawn: Callable[[], _Process], result: Future[_Process]) -> None:
    try:
        result.set_result(spawn())
    except BaseException as error:  # noqa: BLE001 (raised again in the calling thread)
        result.set_exception(error)


_lock = threading.Lock()
_keeper: _Keeper | None = None
_WATCHED: weakref.WeakSet[_Process] = weakref.WeakSet()


def _on_keeper(spawn: Callable[[], _Process]) -> _Process:
    global _keeper
    with _lock:
        _keeper = _keeper or _Keeper()
    result: Future[_Process] = Future()
    _keeper.todo.put((spawn, result))
    return result.result()


def _after_fork() -> None:
    """In a forked child the keeper thread does not run, and the pipes to the watchdogs must not stay open."""
    global _keeper, _lock
    _keeper, _lock = None, threading.Lock()
    for watchdog in _WATCHED:
        if watchdog.stdin:
            watchdog.stdin.close()


after_fork(_after_fork)
