"""Runs tests again and again, and says how often which of them failed: `make flicker N=20`.

Each run has a seed of its own. Every second one is beside as many processes that burn a core each as there are cores.
Tests that are named (PYTEST_ARGS) run N times within two runs: one quiet, one beside those. A test of the record
(tests/flickers.py) that passed often enough leaves it.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.flickers import ENOUGH, Record
from tests.outcomes import Outcomes, run_apart
from tests.selection import REPEAT, unrepeated


@dataclass
class Tally:
    """How often a test passed while the machine was quiet and while it was busy, and failed with which seeds."""

    quiet: int = 0
    busy: int = 0
    failures: int = 0
    seeds: list[int] = field(default_factory=list)

    @property
    def runs(self) -> int:
        """How often it ran."""
        return self.quiet + self.busy + self.failures

    @property
    def is_steady(self) -> bool:
        """Whether it may leave the record."""
        return not self.failures and min(self.quiet, self.busy) >= ENOUGH // 2


@contextmanager
def burning(count: int) -> Iterator[None]:
    """*count* processes that never rest; they end with the block, or with this process."""
    watched = "import os; parent = os.getppid()\nwhile os.getppid() == parent: sum(range(10**6))"
    processes = [subprocess.Popen([sys.executable, "-c", watched]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def count(found: dict[str, Tally], outcomes: Outcomes, seed: int, *, is_busy: bool, is_repeated: bool) -> None:
    """Add the outcomes of a run to what was *found*; repetitions of one test are one."""
    name = unrepeated if is_repeated else str
    for nodeid in outcomes.passed:
        test = found[name(nodeid)]
        test.busy += is_busy
        test.quiet += not is_busy
    for nodeid in outcomes.failed:
        test = found[name(nodeid)]
        test.failures += 1
        test.seeds += [] if seed in test.seeds else [seed]


def table(found: Mapping[str, Tally]) -> list[str]:
    """A line for each test that failed."""
    rows = sorted((test.failures, test.runs, name, test.seeds) for name, test in found.items() if test.failures)
    head = f"{'runs':>6} {'failures':>8}  test; seeds"
    lines = [f"{runs:6} {failures:8}  {name}; {', '.join(map(str, seeds))}" for failures, runs, name, seeds in rows]
    return [head, *reversed(lines)]


def clear(found: Mapping[str, Tally]) -> list[str]:
    """Take out of the record what is steady; return a line for each test of it that ran."""
    try:
        record = Record()
        names = [each.test for each in record.flickers() if each.test in found]
    except OSError as error:
        return [f"the record of flickers stays as it is: {error}"]
    for name in names:
        if found[name].is_steady:
            record.remove(name)
    told = {True: "taken out of the record of flickers", False: f"recorded as a flicker until it passes {ENOUGH} times"}
    return [f"{name[:200]}: {told[found[name].is_steady]}" for name in names]


def run(words: list[str], repeat: int, log: Path, found: dict[str, Tally], *, is_busy: bool) -> Outcomes:
    """One run of pytest, with a seed that it prints; what passed and failed is added to what was *found*."""
    seed, began = random.SystemRandom().randrange(2**32), time.monotonic()
    environment = {**os.environ, "SHARDQ_SEED": str(seed), REPEAT: str(repeat)}
    cores = os.cpu_count() or 1
    with burning(cores * is_busy):
        outcomes = run_apart(["-q", "-n", str(cores + 2), *words], environment, log)
    count(found, outcomes, seed, is_busy=is_busy, is_repeated=repeat > 1)
    beside = "beside busy processes, " if is_busy else ""
    print(f"{beside}{(time.monotonic() - began) / 60:.1f} min, seed {seed}, ", end="")
    print("passed" if outcomes.is_good else f"failed: {log}", flush=True)
    if outcomes.is_good:  # only what somebody may want to read stays
        log.unlink()
    return outcomes


def main() -> int:
    """Run, print the table, and return 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="make flicker N=", description=__doc__)
    parser.add_argument("times", type=int, help="how often")
    parser.add_argument("words", nargs=argparse.REMAINDER, help="for pytest, whose options keep their order")
    given = parser.parse_args()
    words = given.words
    named = any(word.startswith("tests/") for word in words)
    runs, repeat = (2, max(1, -(-given.times // 2))) if named else (given.times, 1)
    folder, found, bad = Path(tempfile.mkdtemp(prefix="shardq-flicker-")), defaultdict[str, Tally](Tally), []
    for number in range(runs):
        print(f"run {number + 1} of {runs}: ", end="", flush=True)
        outcomes = run(words, repeat, folder / f"{number + 1}.log", found, is_busy=bool(number % 2))
        bad += [] if outcomes.is_good else [outcomes]
    failed = any(test.failures for test in found.values())
    print(f"{len(found):,} tests, {sum(test.runs for test in found.values()):,} runs of a test, {len(bad)} runs failed")
    print("\n".join(table(found)) if failed else "no test failed")
    for line in [line for outcomes in bad for line in outcomes.broken] or clear(found):
        print(line)
    if not bad:
        folder.rmdir()
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
