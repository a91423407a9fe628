"""A command as process 1 of a container: it continues in a child, and process 1 waits for orphans.

The kernel gives process 1 the programs whose parents have ended, and each stays in the table of processes until it is
waited for. A worker that waited for any of them would take from `subprocess` how its own have ended. So process 1 does
nothing but this, and hands signals on. It is this file as a program, without all that the command has imported.
"""

from __future__ import annotations

import os
import signal
import sys

NAMES = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCHLD")
SIGNALS = [each for each in signal.Signals if each.name in NAMES]
"""Those that are handed on, and the one that says that a process has ended."""


def go_on_below() -> None:
    """If this is process 1, return in a child, and end process 1 as that ends; else do nothing.

    Call it before threads begin: a child has none of them.
    """
    if os.getpid() != 1:
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # what comes from now on waits for `serve`
    if child := os.fork():
        os.execv(sys.executable, [sys.executable, "-I", "-S", __file__, str(child)])  # noqa: S606 (this file itself)
    os.setsid()  # so a terminal sends its signals to process 1 only, which hands them on
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def serve(child: int) -> int:
    """Hand signals on to *child* until it has ended; return its exit code, as shells say it."""
    while True:
        number = signal.sigwait(SIGNALS)
        if number != signal.SIGCHLD:
            os.kill(child, number)  # it is there until it is waited for
        elif (code := _reaped(child)) is not None:
            return code if code >= 0 else 128 - code


def _reaped(child: int) -> int | None:
    """Wait for all processes that have ended. How *child* has ended, if it is one of them."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == child:
            return os.waitstatus_to_exitcode(status)
        if not pid:
            return None


if __name__ == "__main__":
    sys.exit(serve(int(sys.argv[1])))
