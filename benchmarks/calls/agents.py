"""Contenders in processes of their own, so that each has its own environment and checkout, in interleaved rounds."""

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
from benchmarks.prior_art import connect
from benchmarks.rounds import server_cpu, server_us, take_turns
from benchmarks.settings import Place
from benchmarks.workers.environments import ROOT


class Called(NamedTuple):
    """One contender in one round: µs per message by the clock, of CPU, and of its commands; p50 and p99 of a call."""

    wall: float
    client: float
    server: float
    commands: float
    p50: float
    p99: float


Runs = dict[str, list[Called]]


class Agent:
    """The process of one contender; it ends with the context. RuntimeError when it is asked and has ended before."""

    def __init__(
        self, module: str, given: Given, tree: Path | None = ROOT, python: Path | str = sys.executable
    ) -> None:
        words = [str(python), "-m", "benchmarks.calls.agent", module, str(tree or ""), json.dumps(asdict(given))]
        self._process = subprocess.Popen(
            words, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), "BENCH_URL": given.url},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def __contains__(self, action: str) -> bool:
        return action in self._actions

    @cached_property
    def _actions(self) -> dict[str, Any]:
        """What it can do: messages and commands. It says so at its start, which nobody waits for before."""
        found: dict[str, Any] = self._answer()
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

    def measured(self, server: Any, action: str) -> Called:
        """Run an action once."""
        messages, commands = self._actions[action]
        self._do("prepare", action)
        spent, busy = server_us(server, commands), server_cpu(server)
        told = self._do("run", action)
        spent, busy = server_us(server, commands) - spent, server_cpu(server) - busy
        self._do("finish", action)
        wall, client, busy = (1e6 * seconds / messages for seconds in (told["wall"], told["client"], busy))
        return Called(wall, client, busy, spent / messages, told["p50"], told["p99"])


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: one agent and one of its actions."""

    name: str
    agent: Agent
    action: str


class Field:
    """The agents of one benchmark, on one server."""

    def __init__(self, place: Place, messages: int, stack: contextlib.ExitStack) -> None:
        self._place, self._messages, self._stack = place, messages, stack
        self._server = stack.enter_context(connect(place.url))

    def agent(self, module: str, *, window: int | None = None, **where: Any) -> Agent:
        """Start one; it has a queue of its own."""
        chosen = self._place.settings
        given = Given(
            self._place.url, f"calls-{uuid.uuid4().hex[:8]}", self._messages, chosen.batch,
            chosen.payload, chosen.streams, chosen.per_shard, chosen.tenants, chosen.seed,
            max(1, chosen.messages // 1000), window,
        )  # fmt: skip
        return self._stack.enter_context(Agent(module, given, **where))

    def take(self, rows: Sequence[Row], rounds: int) -> Runs:
        """Run all rows that their agents know, in turns."""
        known = {row.name: row for row in rows if row.action in row.agent}

        def measure(name: str) -> Called:
            return known[name].agent.measured(self._server, known[name].action)

        return take_turns(list(known), rounds, self._place.settings.seed, measure)


@contextlib.contextmanager
def field(place: Place, messages: int) -> Iterator[Field]:
    """Agents that are told so many messages, and end with the context."""
    with contextlib.ExitStack() as stack:
        yield Field(place, messages, stack)
