"""Runs tests again and again, and says how often which of them failed: `make flicker N=20`.

Each run has a seed of its own. Every second one is beside as many processes that burn a core each as there are cores.
Tests that are named (PYTEST_ARGS) run N times within two runs: one quiet, one beside those.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.selection import REPEAT

ROOT = Path(__file__).resolve().parents[1]


@dataclass
class Test:
    """How often a test ran, and the seeds of the runs in which it failed."""

    runs: int = 0
    failures: int = 0
    seeds: list[int] = field(default_factory=list)


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


def run(words: list[str], seed: int, repeat: int, folder: Path) -> tuple[int, Path]:
    """One run of pytest: its exit status, and the report."""
    report, log = folder / f"{seed}.xml", folder / f"{seed}.log"
    environment = {**os.environ, "SHARDQ_SEED": str(seed), REPEAT: str(repeat)}
    options = ["-q", "-n", str((os.cpu_count() or 1) + 2), f"--junitxml={report}", "-o", "junit_family=xunit1"]
    command = [sys.executable, "-m", "pytest", *options, *words]
    with log.open("w") as file:
        return subprocess.run(
            command, cwd=ROOT, env=environment, stdout=file, stderr=file, check=False
        ).returncode, report


def count(found: dict[str, Test], report: Path, seed: int) -> None:
    """Add the tests of a report to what was *found*; repetitions of one test are one.

    A run that was ended has no report.
    """
    if not report.exists():
        return
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 (pytest has just written it)
        name = f"{case.get('classname')}::{case.get('name')}".partition("@")[0]
        test = found[name]
        test.runs += 1
        if case.find("failure") is not None or case.find("error") is not None:
            test.failures += 1
            test.seeds += [] if seed in test.seeds else [seed]


def table(found: dict[str, Test]) -> list[str]:
    """A line for each test that failed."""
    rows = sorted((test.failures, test.runs, name, test.seeds) for name, test in found.items() if test.failures)
    head = f"{'runs':>6} {'failures':>8}  test; seeds"
    lines = [f"{runs:6} {failures:8}  {name}; {', '.join(map(str, seeds))}" for failures, runs, name, seeds in rows]
    return [head, *reversed(lines)]


def main() -> int:
    """Run, print the table, and return 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="make flicker N=", description=__doc__)
    parser.add_argument("times", type=int, help="how often")
    parser.add_argument("words", nargs=argparse.REMAINDER, help="for pytest, whose options keep their order")
    given = parser.parse_args()
    words = given.words
    named = any(word.startswith("tests/") for word in words)
    runs, repeat = (2, max(1, -(-given.times // 2))) if named else (given.times, 1)
    folder, found, broken = Path(tempfile.mkdtemp(prefix="shardq-flicker-")), defaultdict[str, Test](Test), 0
    for number in range(runs):
        seed, began = random.SystemRandom().randrange(2**32), time.monotonic()
        with burning((os.cpu_count() or 1) * (number % 2)):
            status, report = run(words, seed, repeat, folder)
        count(found, report, seed)
        broken += status != 0
        beside = " beside busy processes" if number % 2 else ""
        print(f"run {number + 1} of {runs}{beside}: {(time.monotonic() - began) / 60:.1f} min, seed {seed}, ", end="")
        print("passed" if status == 0 else f"failed: {folder}/{seed}.log", flush=True)
        if status == 0:  # only what somebody may want to read stays
            report.unlink()
            report.with_suffix(".log").unlink()
    failed = any(test.failures for test in found.values())
    print(f"{len(found):,} tests, {sum(test.runs for test in found.values()):,} runs of a test, {broken} runs failed")
    print("\n".join(table(found)) if failed else "no test failed")
    if not broken:
        folder.rmdir()
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
