"""Processes of one version, which are started and ended together. Each has logs in a folder."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.gateway.conftest import GatewayProcess
from tests.upgrade.sources import running
from tests.waiting import eventually

SOON: Final = 300.0
"""Seconds. Nothing takes so long, also on a machine that is busy with other things."""
MORE: Final = 4_000
"""Bytes that a log grows by while its process goes on: some ten calls."""


class Side:
    """The programs of one version: its `code` runs in all of them. What is left of them at the end is killed.

    Those that read and write use two queues, which begin with the name `queue`.
    """

    def __init__(self, name: str, code: Path, url: str, queue: str, folder: Path) -> None:
        self.name, self._code, self._url, self._queue, self._folder = name, code, url, queue, folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._roles: dict[str, int] = {}
        self._number = 0

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._running.values():
            each.kill()
            each.wait()

    def start(self, roles: str, *words: str) -> str:
        """Start a process with these roles of `party`. Return its name."""
        name = f"{self.name}-{self._number}"
        self._number += 1
        self._roles[name] = len(roles.split("+"))
        where = [self._url, self._queue, str(self._folder), name]
        command = [sys.executable, "-m", "tests.upgrade.party", roles, *where, *words]
        with (self._folder / f"{name}.err").open("wb") as errors:
            self._running[name] = subprocess.Popen(command, env=running(self._code), stderr=errors)
        return name

    def end(self, *names: str) -> None:
        """Let the processes of these names end, or all, as a deploy does. None may have failed."""
        for name in (ending := names or [*self._running]):
            assert self._running[name].poll() is None, f"{name} ended by itself: {self._last_words(name)}"
            self._running[name].send_signal(signal.SIGTERM)
        for name in ending:
            assert self._running.pop(name).wait(SOON) == 0, f"{name} failed: {self._last_words(name)}"

    def go_on(self) -> None:
        """Wait until each of their roles has done more. One that fails says why."""
        sizes = {name: self._sizes(name) for name in self._running}

        def is_further() -> bool:
            for name, each in self._running.items():
                assert each.poll() is None, f"{name} failed: {self._last_words(name)}"
            return all(
                sum(size > old.get(log, 0) + MORE for log, size in self._sizes(name).items()) == self._roles[name]
                for name, old in sizes.items()
            )

        eventually(is_further, SOON, every=0.05)

    def ask(self, role: str, *words: str) -> Mapping[str, Any]:
        """Run a process with a role to its end. Return what it logged last."""
        name = self.start(role, *words)
        code = self._running.pop(name).wait(SOON)
        assert code == 0, f"{name} failed: {self._last_words(name)}"
        (log,) = self._folder.glob(f"*/{name}-*.jsonl")
        said: Mapping[str, Any] = json.loads(log.read_text().splitlines()[-1])
        log.unlink()
        return said

    def run(self, *words: str, text: str = "") -> str:
        """Run the command shardq with these words, and *text* as its input. Return what it prints."""
        done = subprocess.run(
            [sys.executable, "-m", "shardq.cli", *words, "--url", self._url],
            env=running(self._code), input=text, capture_output=True, text=True, timeout=SOON,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def gateway(self, listen: str) -> GatewayProcess:
        """Start a gateway."""
        return GatewayProcess(self._url, "--insecure", "--listen", listen, env=running(self._code))

    def _sizes(self, name: str) -> dict[Path, int]:
        return {each: each.stat().st_size for each in self._folder.glob(f"*/{name}-*.jsonl")}

    def _last_words(self, name: str) -> str:
        return (self._folder / f"{name}.err").read_text()[-2000:]
