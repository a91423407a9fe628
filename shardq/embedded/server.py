"""The embedded server: its settings, start and stop."""

from __future__ import annotations

import atexit
import os
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self
from urllib.parse import quote

from shardq.arguments import mapping, path, seconds, text, whole
from shardq.clock import SystemClock
from shardq.embedded.binary import ServerBinary, find_server
from shardq.embedded.child import ChildProcess
from shardq.embedded.home import Home, pause
from shardq.errors import BackendError, ConfigError

_CLOCK = SystemClock()
_OURS = frozenset({"port", "unixsocket", "unixsocketperm", "dir", "logfile", "daemonize"})
_PORT_TRIES = 5


def _checked_options(options: Mapping[str, str]) -> dict[str, str]:
    found = mapping("options", options, "str to str")
    return {text("an option's name", name): text("an option's value", value) for name, value in found.items()}


class EmbeddedServer:
    """One private server process; `start` and `stop` are idempotent and safe across threads and forks.

    - `directory`: keeps the data, in an append-only file that is synced every second; one server at a time may use it.
      With None the data is in memory only, and the server's files are in a temporary directory that is removed.
    - `port`: None for no TCP port, 0 for a free one, else the port; always on 127.0.0.1 and without a password.
    - `binary`: the program to run; None looks for one (`find_server`).
    - `options`: further settings of the server, as in redis.conf.
    - `timeout`: seconds that starting (without loading data) and stopping may take.

    ConfigError for a bad setting.

    >>> from shardq import Client
    >>> server = EmbeddedServer().start()
    >>> with Client.from_url(server.url) as client:
    ...     client.queue("jobs", create=True).len()
    0
    >>> server.stop()
    """

    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        port: int | None = None,
        binary: str | None = None,
        options: Mapping[str, str] | None = None,
        timeout: float = 10.0,
    ) -> None:
        self._options = _checked_options({} if options is None else options)
        if taken := _OURS & self._options.keys():
            raise ConfigError(f"EmbeddedServer itself sets these options: {', '.join(sorted(taken))}")
        self._durable = directory is not None
        if directory is not None:
            path("directory", directory)
        if binary is not None:
            path("binary", binary)
        seconds("timeout", timeout, 0.1, 3600)
        self._home = Home(Path(directory).expanduser().absolute() if directory is not None else None)
        if port is not None:
            whole("port", port, 0, 65_535)
        self._any_port, self._port = port == 0, port or None
        self._named, self._timeout = binary, timeout
        self._lock = threading.RLock()
        self._owner: int | None = None  # the process that started the server; a fork of it must not stop it
        self._process: ChildProcess | None = None
        self._binary: ServerBinary | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """`unix:///…?db=0`, or `redis://127.0.0.1:…/0` with a port; `BackendError` while stopped."""
        if self._owner is None:
            raise BackendError("the embedded server is not started")
        return f"redis://127.0.0.1:{self._port}/0" if self._port else f"unix://{quote(str(self._home.socket))}?db=0"

    @property
    def port(self) -> int | None:
        """The TCP port; None without one, and before a free one was chosen."""
        return self._port

    @property
    def pid(self) -> int | None:
        """The server's process id, None while stopped."""
        return self._process.pid if self._process else None

    @property
    def running(self) -> bool:
        """Whether the server runs; False also after a crash, after which `start` starts it again."""
        if self._owner == os.getpid():
            process = self._process
            return process is not None and process.running()
        return self._owner is not None and bool(
            _ping(str(self._home.socket))
        )  # in a fork the server is not a child of this process

    @property
    def name(self) -> str:
        """Product and version, such as "valkey 9.1.2" or "redis 7.0.15"; also before the start."""
        return self._program().name

    @property
    def version(self) -> str:
        """The version, such as "9.1.2"; also before the start."""
        return self._program().version

    def start(self) -> Self:
        """Start the server unless it runs, and wait until it answers; a crashed one gets the same URL again.

        Raises `ServerUnfit` when there is no fit program, and `BackendError` when the directory is in use or the server
        does not start (with the end of its log). In a fork of the process that started it, does nothing.
        """
        if self._owner in (None, os.getpid()):
            with self._lock:
                if self._process is None or not self._process.running():
                    self._launch()
        return self

    def stop(self) -> None:
        """End the server and remove its temporary files; does nothing while stopped, or in a fork.

        It raises nothing.
        """
        if self._owner != os.getpid():
            return
        with self._lock:
            atexit.unregister(self.stop)
            self._end(self._timeout if self._durable else 0)
            self._home.remove()
            self._owner = None
            self._port = None if self._any_port else self._port

    def _program(self) -> ServerBinary:
        self._binary = self._binary or find_server(self._named)
        return self._binary

    def _launch(self) -> None:
        self._program()
        self._owner = os.getpid()
        atexit.register(self.stop)
        try:
            self._end()  # of a server that crashed
            self._home.make()
            self._bring_up()
        except BaseException:
            self.stop()
            raise

    def _bring_up(self) -> None:
        for tries_left in reversed(range(_PORT_TRIES)):
            picked = self._any_port and self._port is None
            if picked:
                self._port = _free_port()
            log_start = self._spawn()
            if self._answers():
                return
            log = self._home.log_since(log_start)
            taken = "already in use" in log
            if taken and not picked:
                raise BackendError(f"port {self._port} is in use on 127.0.0.1: choose another, or 0 for any free one")
            if not (taken and tries_left):
                raise BackendError(f"{self.name} did not start; the end of its log:\n{log}")
            self._port = None  # another program took the port first: try another port

    def _spawn(self) -> int:
        """Start the process, which from then on holds the directory's lock; returns where its log begins."""
        with self._home.lock() as lock, self._home.log() as log:
            start = log.seek(0, os.SEEK_END)
            self._process = ChildProcess(self._command(), directory=self._home.path, log=log.fileno(), keep=[lock])
            os.pwrite(lock, b"%-10d" % self._process.pid, 0)
        return start

    def _command(self) -> list[str]:
        settings = {
            "port": str(self._port or 0),
            "bind": "127.0.0.1",
            "unixsocket": str(self._home.socket),
            "unixsocketperm": "700",
            "dir": str(self._home.path),
            "save": "",
            "appendonly": "yes" if self._durable else "no",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
        }
        pairs = [(f"--{key}", value) for key, value in (settings | self._options).items()]
        return [self._program().path, *(word for pair in pairs for word in pair)]

    def _answers(self) -> bool:
        """Wait until the server answers; False (and no process) when it exits or `timeout` passes first."""
        deadline = _CLOCK.monotonic() + self._timeout
        while self._process and self._process.running() and _CLOCK.monotonic() < deadline:
            reply = _ping(str(self._home.socket))
            if reply and not reply.startswith(b"-LOADING"):
                return True
            if reply:
                deadline = _CLOCK.monotonic() + self._timeout  # it is loading its data, which may take minutes
            pause()
        self._end()
        return False

    def _end(self, grace: float = 0) -> None:
        if self._process:
            self._process.end(grace)
            self._process = None


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _ping(path: str) -> bytes:
    """The server's answer to PING; empty if there is none yet."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1)
        try:
            connection.connect(path)
            connection.sendall(b"PING\r\n")
            return connection.recv(64)
        except OSError:
            return b""
