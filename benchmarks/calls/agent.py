"""The process that makes the calls of one contender: `python -m benchmarks.calls.agent MODULE GIVEN`.

It runs in the environment of the contender. It first prints its actions with their messages, then obeys lines
`STEP ACTION` on its standard input, and answers each with a line of JSON.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from importlib import import_module
from typing import Any

from benchmarks.calls.action import Action, Given


def percentile(ordered: list[float], share: float) -> float:
    """In µs, by the nearest rank."""
    return 1e6 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Steps:
    """The steps of all actions."""

    def __init__(self, actions: dict[str, Action]) -> None:
        self._actions = actions
        self._state: Any = None

    def prepare(self, action: str) -> dict[str, float]:
        """Make what the action needs. Garbage of earlier ones is not its own."""
        self._state = self._actions[action].prepare()
        gc.collect()
        return {}

    def run(self, action: str) -> dict[str, float]:
        """Seconds by the clock and of CPU, all told; a call's µs at the middle and at the 99th percentile."""
        run = self._actions[action].run
        cpu, begun = time.process_time(), time.perf_counter()
        found = run(self._state)
        wall, cpu = time.perf_counter() - begun, time.process_time() - cpu
        found.sort()
        return {"wall": wall, "client": cpu, "p50": percentile(found, 0.5), "p99": percentile(found, 0.99)}

    def finish(self, action: str) -> dict[str, float]:
        """Settle what is left."""
        self._actions[action].finish(self._state)
        self._state = None
        return {}


def main(module: str, given: str) -> None:
    actions = import_module(f"benchmarks.calls.{module}").actions(Given(**json.loads(given)))
    print(json.dumps({name: each.messages for name, each in actions.items()}), flush=True)
    steps = Steps(actions)
    for line in sys.stdin:
        step, _, action = line.strip().partition(" ")
        print(json.dumps(getattr(steps, step)(action)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
