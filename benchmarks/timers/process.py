"""Runs a measurement in a process of its own, so that garbage and memory of another one do not change its result."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module


def in_process(module: str, *words: object) -> dict[str, float]:
    """What `measure(words)` of `module` returns."""
    command = [sys.executable, "-m", "benchmarks.timers.process", module, *map(str, words)]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    found: dict[str, float] = json.loads(told)
    return found


def here(module: str, *words: object) -> dict[str, float]:
    """The same in this process."""
    found: dict[str, float] = import_module(module).measure(*map(str, words))
    return found


if __name__ == "__main__":
    print(json.dumps(here(*sys.argv[1:])))
