"""Commands in processes of their own that need not import shardq: each is forked from one that has.

Importing it takes a third of a second of CPU, and the tests run hundreds of commands. As a program this is the process
that they are forked from. It ends when its input does, and that is when the process that runs the tests ends; a command
that still runs then, or for longer than it may, is killed with all that it started.
"""

from __future__ import annotations

import gc
import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

LIMIT: Final = 150
"""Seconds that a command may take."""

KILLED: Final = b"too long"
"""What is told of a command that took longer, in place of its exit code."""

ROOT: Final = Path(__file__).parents[2]


class Forks:
    """Starts the process to fork from when the first command is run."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None

    def run(
        self, words: Sequence[str], environment: Mapping[str, str], stdin: bytes, limit: float = LIMIT
    ) -> tuple[int, bytes, bytes]:
        """Its exit code and what it wrote to standard output and standard error; *limit* is how long it may take."""
        try:
            return self._run(words, environment, stdin, limit)
        except BaseException:  # a test's timeout, too: nobody reads the answer, so the next one needs another process
            self.close()
            raise

    def _run(
        self, words: Sequence[str], environment: Mapping[str, str], stdin: bytes, limit: float
    ) -> tuple[int, bytes, bytes]:
        line = self._started()
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(stdin)
            given.seek(0)
            said = {"words": words, "environment": dict(environment), "folder": str(Path.cwd()), "limit": limit}
            request = json.dumps(said).encode()
            socket.send_fds(line, [b"%8d" % len(request)], [each.fileno() for each in (given, out, err)])
            line.sendall(request)
            code = line.recv(8)
            assert code, "the process that commands are forked from has ended"
            for file in (out, err):
                file.seek(0)
            assert code != KILLED, (
                f"shardq {shlex.join(words)[:1_000]} took longer than {limit:g} s, and was killed. "
                f"It wrote {err.read()[-1_000:]!r} and {out.read()[-1_000:]!r}"
            )
            return int(code), out.read(), err.read()

    def _started(self) -> socket.socket:
        if self._line is None:
            self._line, theirs = socket.socketpair()
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.cli.forks"], stdin=theirs.fileno(), cwd=ROOT
                )
        return self._line

    def close(self) -> None:
        """End the process, and the command that it waits for."""
        if self._line and self._process:
            self._line.close()
            self._process.wait(LIMIT)
        self._line = self._process = None


def fork_commands(line: socket.socket) -> None:
    """Return in each process that is to run a command, and end when nobody asks for any more."""
    while size := line.recv(8, socket.MSG_PEEK):
        size, files, _, _ = socket.recv_fds(line, 8, 3)
        request = json.loads(b"".join(_received(line, int(size))))
        if (pid := os.fork()) == 0:
            _become(request, files)
            line.close()
            return
        for file in files:
            os.close(file)
        if (told := _outcome(pid, line, float(request["limit"]))) is None:
            break
        line.sendall(told)
    sys.exit()


def _outcome(pid: int, line: socket.socket, limit: float) -> bytes | None:
    """The exit code of a command, or that it was killed; nothing if nobody waits for it any more."""
    os.setpgid(pid, pid)  # so that it can be killed with all that it has started
    end, asked = os.pidfd_open(pid), line.fileno()
    ready, _, _ = select.select([end, asked], [], [], limit)
    os.close(end)
    if end not in ready:
        os.killpg(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if asked in ready:
        return None
    return b"%8d" % code if end in ready else KILLED


def _received(line: socket.socket, size: int) -> list[bytes]:
    parts = []
    while size:
        parts.append(line.recv(size))
        size -= len(parts[-1])
    return parts


def _become(request: dict[str, object], files: list[int]) -> None:
    for at, file in enumerate(files):
        os.dup2(file, at)
        os.close(file)
    os.chdir(str(request["folder"]))
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    sys.argv[1:] = request["words"]  # type: ignore[call-overload]


if __name__ == "__main__":
    from shardq.cli import running  # noqa: F401 - what each command needs
    from shardq.cli.program import main

    gc.collect()
    gc.freeze()  # or each command would look at all that was imported when it ends: three quarters of its time
    with socket.socket(fileno=os.dup(0)) as mine:
        fork_commands(mine)
    sys.exit(main())
