"""Contenders in processes of their own, so that each has its own environment, in interleaved rounds."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

from benchmarks.calls.action import Given
from benchmarks.modes.probes import Probe, cpu_of
from benchmarks.rounds import take_turns
from benchmarks.settings import ROOT, Place


class Called(NamedTuple):
    """One contender in one round: µs per message by the clock, and of CPU; p50 and p99 of a call."""

    wall: float
    client: float
    server: float
    p50: float
    p99: float

    @property
    def cpu(self) -> float:
        """Of client and server."""
        return self.client + self.server


Runs = dict[str, list[Called]]


class Agent:
    """The process of one contender; it ends with the context. RuntimeError when it is asked and has ended before."""

    def __init__(self, module: str, given: Given, python: Path | str = sys.executable) -> None:
        self._process = subprocess.Popen(
            [str(python), "-m", "benchmarks.calls.agent", module, json.dumps(asdict(given))],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), "BENCH_URL": given.url},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    @cached_property
    def actions(self) -> dict[str, int]:
        """What it can do, and with how many messages. It says so at its start, which nobody waits for before."""
        found: dict[str, int] = self._answer()
        return found

    def _answer(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            self._process.communicate()
            raise RuntimeError("the process of a contender ended; it says why above")
        return json.loads(line)

    def _do(self, step: str, action: str) -> Any:
        assert self._process.stdin
        self._process.stdin.write(f"{step} {action}\n")
        self._process.stdin.flush()
        return self._answer()

    def measured(self, server: Probe, action: str) -> Called:
        """Run an action once; *server* tells the µs of CPU of the server."""
        messages = self.actions[action]
        self._do("prepare", action)
        busy = server()["cpu"]
        told = self._do("run", action)
        busy = server()["cpu"] - busy
        self._do("finish", action)
        wall, client = (1e6 * told[what] / messages for what in ("wall", "client"))
        return Called(wall, client, busy / messages, told["p50"], told["p99"])


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: one agent and one of its actions."""

    name: str
    agent: Agent
    action: str


class Field:
    """The agents of one table, on one server."""

    def __init__(self, place: Place, messages: int, waiting: int, stack: contextlib.ExitStack) -> None:
        self._place, self._messages, self._waiting, self._stack = place, messages, waiting, stack
        assert place.server.pid
        self._server = cpu_of(place.server.pid)

    def agent(self, module: str, **where: Any) -> Agent:
        """Start one; it has a queue of its own."""
        chosen = self._place.settings
        given = Given(
            self._place.url, f"calls-{uuid.uuid4().hex[:8]}", self._messages, chosen.batch, chosen.payload,
            chosen.streams, chosen.per_shard, chosen.tenants, chosen.seed, self._waiting,
        )  # fmt: skip
        return self._stack.enter_context(Agent(module, given, **where))

    def take(self, rows: Sequence[Row], rounds: int) -> Runs:
        """Run all rows, in turns."""
        named = {row.name: row for row in rows}

        def measure(name: str) -> Called:
            return named[name].agent.measured(self._server, named[name].action)

        return take_turns(list(named), rounds, self._place.settings.seed, measure)


@contextlib.contextmanager
def field(place: Place, messages: int, waiting: int = 0) -> Iterator[Field]:
    """Agents that are told so many messages, and end with the context."""
    with contextlib.ExitStack() as stack:
        yield Field(place, messages, waiting, stack)
