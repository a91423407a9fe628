"""The contenders, each a checkout with processes and servers of its own, and their turns."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from benchmarks.grind import Ground, ground
from benchmarks.modes.caller import FILLED, Order
from benchmarks.modes.cost import Cost
from benchmarks.modes.cycles import KEPT
from benchmarks.modes.matrix import MODES
from benchmarks.modes.mode import Mode
from benchmarks.modes.probes import INSTRUCTIONS
from benchmarks.modes.trees import tree_of
from benchmarks.rounds import take_turns
from benchmarks.settings import ROOT, Place, Settings, place

PRESENT = "present"
"""The name of this checkout in tables."""

SINGLES, BATCHES, MANY = 50, 10, 4
"""Of the messages that the settings say, a turn has a 50th in single calls, and a tenth in batches. Memory is that of
four times as many."""
COUNTED_GROUPS, COUNTED_BATCHES = 4, 10
"""Of so many groups of single calls, and batches, the instructions are counted."""


class Failed(Exception):
    """A mode does not work; why."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One shardq: its name in the tables, and its checkout."""

    name: str
    tree: Path


def contenders(settings: Settings) -> list[Contender]:
    """This checkout; if the settings name a base, it comes first, and this one is compared with it."""
    base = tree_of(settings.base)
    earlier = [Contender(base.commit, base.folder)] if base else []
    return [*earlier, Contender(PRESENT, ROOT)]


class Agent:
    """The process of one contender; it ends with the context."""

    def __init__(self, contender: Contender, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.modes.agent", str(contender.tree)],
            cwd=ROOT, env={**os.environ, **environment, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def obey(self, order: Order) -> dict[str, Any]:
        """Run a turn; what was spent. Failed when the mode fails, RuntimeError when the process has ended."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{json.dumps(asdict(order))}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process of a contender ended; it says why above")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise Failed(answer["failed"])
        spent: dict[str, Any] = answer["spent"]
        return spent


Costs = dict[str, dict[str, list[Cost]]]
"""By contender, and then by mode: a mode and the one that stands beside it."""


class Contest:
    """The contenders, each with an agent for each environment that a mode asks for."""

    def __init__(self, settings: Settings, contenders: Sequence[Contender], stack: contextlib.ExitStack) -> None:
        self.contenders = contenders
        self._settings, self._stack = settings, stack
        self._agents: dict[Any, Agent] = {}
        self._grounds: dict[Contender, Ground] = {}

    def take(self, mode: Mode, batch: int) -> Costs:
        """The rounds of a mode, in batches or one message a call (*batch* 1), and of the one that stands beside it."""
        modes = [mode, *([MODES[mode.beside]] if mode.beside else [])]
        messages = self._settings.messages // (SINGLES if batch == 1 else BATCHES)
        with self._places() as places:

            def measure(turn: tuple[Contender, Mode]) -> Cost:
                return Cost.of(self._obey(*turn, places[turn[0]], batch, messages))

            turns = {f"{one.name}: {each.name}": (one, each) for one in self.contenders for each in modes}
            found = take_turns(
                list(turns), self._settings.rounds, self._settings.seed, lambda name: measure(turns[name])
            )
        return {one.name: {each.name: found[f"{one.name}: {each.name}"] for each in modes} for one in self.contenders}

    def memory(self, mode: Mode) -> dict[str, float]:
        """By contender, the bytes that a message of a mode takes."""
        with self._places() as places:
            return {
                one.name: self._obey(one, mode, places[one], FILLED, MANY * self._settings.messages)[KEPT]["bytes"]
                for one in self.contenders
            }

    def instructions(self, mode: Mode, batch: int) -> dict[str, dict[str, float]]:
        """By contender, and then by verb, the instructions that a message of a mode takes the server."""
        found = {}
        for one in self.contenders:
            where = self._ground(one)
            messages = COUNTED_GROUPS * mode.group if batch == 1 else COUNTED_BATCHES * batch
            spent = self._obey(one, mode, where.place, batch, messages, counts=str(where.counts))
            found[one.name] = {verb: each[INSTRUCTIONS] for verb, each in spent.items()}
        return found

    def _ground(self, contender: Contender) -> Ground:
        """Its server under callgrind, which takes long to start: there is one for all modes."""
        if contender not in self._grounds:
            self._grounds[contender] = self._stack.enter_context(ground(self._settings))
        return self._grounds[contender]

    @contextlib.contextmanager
    def _places(self) -> Iterator[dict[Contender, Place]]:
        """A new server for each contender."""
        with contextlib.ExitStack() as stack:
            yield {one: stack.enter_context(place(self._settings)) for one in self.contenders}

    def _agent(self, contender: Contender, mode: Mode) -> Agent:
        key = contender, tuple(mode.environment.items())
        if key not in self._agents:
            self._agents[key] = self._stack.enter_context(Agent(contender, mode.environment))
        return self._agents[key]

    def _obey(
        self, contender: Contender, mode: Mode, where: Place, batch: int, messages: int, *, counts: str = ""
    ) -> dict[str, Any]:
        chosen = self._settings
        assert where.server.pid
        order = Order(
            mode.name, where.url, where.server.pid, batch, max(2, messages // (mode.group if batch == 1 else batch)),
            chosen.payload, chosen.streams, chosen.per_shard, chosen.seed, counts,
        )  # fmt: skip
        return self._agent(contender, mode).obey(order)


@contextlib.contextmanager
def contest(settings: Settings) -> Iterator[Contest]:
    """One whose agents end with the context."""
    with contextlib.ExitStack() as stack:
        yield Contest(settings, contenders(settings), stack)
