"""Take from Python what it lacks on Windows, and in its event loops; then run the module that is named as a program.

What a real Windows lacks beside it no test here can show.
"""

from __future__ import annotations

import asyncio
import os
import runpy
import select
import signal
import socket
import sys
from types import ModuleType
from typing import Any

MODULES = ("fcntl", "grp", "pwd", "resource", "termios")
NAMES: dict[ModuleType, tuple[str, ...]] = {
    os: (
        "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "fork", "geteuid", "getuid", "killpg",
        "posix_fallocate", "register_at_fork", "sched_getaffinity", "setsid", "statvfs", "uname", "waitid",
    ),
    select: ("epoll", "kqueue", "poll"),
    signal: (
        "SIGCHLD", "SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1", "SIGUSR2", "pthread_kill", "pthread_sigmask", "setitimer",
        "sigwait",
    ),
    socket: ("MSG_DONTWAIT",),
}  # fmt: skip


def refuse(*_: Any) -> None:
    """Stand for what event loops on Windows do not have."""
    raise NotImplementedError


def take_away() -> None:
    """From now on it is missing. What was imported before may have it still."""
    sys.modules.update(dict.fromkeys(MODULES))  # type: ignore[arg-type] # None: an import fails
    for module, names in NAMES.items():
        for name in names:
            vars(module).pop(name, None)
    asyncio.SelectorEventLoop.add_signal_handler = refuse  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    take_away()
    sys.argv.pop(0)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
