"""What .ci/run runs in place of pytest: chance alone does not stop a run, and is not forgotten either.

A test that failed is run again by itself, twice, in fresh processes: with the same seed, and with another. If one of
these fails, the run fails. If both pass, the test *flickered*: it is printed with its first failure and written into
the record (tests/flickers.py). The run passes unless more than two flickered, or one that is in the record already, or
one that cannot be recorded. What is not one test's failure fails the run as it does without this program.

SHARDQ_GATE names the run of .ci/run: its `make check` and its `make test-all` count together.
"""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.flickers import FOLDER, WHAT_IT_IS, Flicker, Record
from tests.outcomes import Outcomes, run_apart, shortened

GATE: Final = "SHARDQ_GATE"
MAX_FLICKERS: Final = 2
MAX_RERUN: Final = 5
"""How many tests are run again: if more fail, the run fails whatever these do, but they tell chance from a defect."""
MAX_SECONDS: Final = 900.0
"""How long all of that may take."""
MAX_LOG: Final = 5_000  # letters of what a rerun that failed has printed

Rerun = Callable[[str, int], str]
"""Runs a test with a seed, and returns why it did not pass, or an empty text."""


def run_again(tests: Iterable[str], seeds: Collection[int], rerun: Rerun) -> dict[str, str]:
    """Which of the tests do not pass with each of the seeds, and why."""
    complaints = {test: next(filter(None, (rerun(test, seed) for seed in seeds)), "") for test in tests}
    return {test: why for test, why in complaints.items() if why}


def objections(flickered: Collection[str], earlier: Collection[str], recorded: Collection[str]) -> list[str]:
    """Why a run fails in which no test failed again.

    Tests *flickered* now, or *earlier* in the same run of .ci/run; some were *recorded* before now.
    """
    lines = [f"{test[:200]} flickered before" for test in flickered if test in recorded]
    count = len({*flickered, *earlier})
    return [*lines, f"{count} tests flickered, and {MAX_FLICKERS} may"] if count > MAX_FLICKERS else lines


def rerunning(environment: Mapping[str, str]) -> Rerun:
    """Reruns in that environment, in `MAX_SECONDS` from now."""
    deadline = time.monotonic() + MAX_SECONDS

    def rerun(test: str, seed: int) -> str:
        with tempfile.TemporaryDirectory(prefix="shardq-gate-") as folder:
            log = Path(folder) / "log"
            remaining = max(0.0, deadline - time.monotonic())
            outcomes = run_apart(["-q", "-n", "0", test], {**environment, "SHARDQ_SEED": str(seed)}, log, remaining)
            passed = outcomes.is_good and outcomes.passed == {test}
            print(f"{test[:200]} {'passed' if passed else 'failed'} with SHARDQ_SEED={seed}", flush=True)
            if passed:
                return ""
            told = [*outcomes.broken, shortened(log.read_text(errors="replace"), MAX_LOG)]
        return f"failed again with SHARDQ_SEED={seed}\n" + _indented("\n".join(told))

    return rerun


def _indented(text: str) -> str:
    """So that nobody takes what a rerun printed for the end of the run."""
    return "\n".join(f"  | {line}" for line in text.splitlines())


def _heading(text: str) -> str:
    return f"\n{f' {text} ':=^120}"


def commit() -> str:
    """What is tested, as far as git knows."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        told = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True).stdout.strip()
    except OSError:  # no git
        told = ""
    return told or "unknown"


def judge(flickers: Sequence[Flicker], run: str) -> tuple[list[Flicker], list[str]]:
    """Record what flickered now; return all that flickered in this run of .ci/run, and why the run fails for it."""
    try:
        record = Record()
        recorded = record.flickers()
        for each in flickers:
            record.add(each)
    except OSError as error:
        why = f"a flicker that is not recorded could flicker for ever: {error}; {FOLDER} names another folder"
        return [*flickers], [why] if flickers else []
    tests = [each.test for each in flickers]
    earlier = [each for each in recorded if each.run == run and each.test not in tests]
    why_not = objections(tests, {each.test for each in earlier}, {each.test for each in recorded})
    return [*earlier, *flickers], why_not


def show(flickers: Sequence[Flicker]) -> None:
    """Print each with its first failure, and how it leaves the record."""
    print(_heading("flickered: failed, then passed twice by itself"))
    for each in flickers:
        print(f"{each.test[:200]}, SHARDQ_SEED={each.seed}", _indented(each.failure), sep="\n")
        print(f"when it is mended: {each.remedy}\n")
    print(WHAT_IT_IS)


def conclude(outcomes: Outcomes, why: Sequence[str]) -> int:
    """Say why the run fails, if it does; the last line is how many tests passed and failed, as pytest's own."""
    passed, failed = len(outcomes.passed), len(outcomes.failed)
    if not why:
        print(f"\n{passed + failed} passed, 0 failed", flush=True)
        return 0
    print(_heading("the run fails"), *why, f"\n{passed} passed, {failed} failed", sep="\n", flush=True)
    return 1


def settle(outcomes: Outcomes, run: str, seed: int, rerun: Rerun) -> int:
    """Run again what failed, and say how the run ends; return 0 if it passes."""
    tests = [*outcomes.failed][:MAX_RERUN]
    others = len(outcomes.failed) - len(tests)
    if tests:
        print(_heading(f"{len(outcomes.failed)} failed: up to {MAX_RERUN} are run again, each by itself"), flush=True)
    failing = run_again(tests, (seed, random.SystemRandom().randrange(2**32)), rerun)
    new = [Flicker(test, seed, commit(), run, outcomes.failed[test]) for test in tests if test not in failing]
    flickers, why = judge(new, run)
    why += [f"{test[:200]} {each}" for test, each in failing.items()]
    why += [f"{others} more failed, and were not run again"] if others else []
    if flickers:
        show(flickers)
    return conclude(outcomes, why) if flickers or why else 0


def main(words: Sequence[str]) -> int:
    """Run pytest, then what failed once more; return 0 if the run passes."""
    run = os.environ.pop(GATE, "") or uuid.uuid4().hex  # what tests start is no part of it
    environment = dict(os.environ)
    outcomes = Outcomes()
    status = outcomes.run(words)
    if outcomes.broken:
        return status
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a failure may have letters that the terminal has not
    seed = int(os.environ["SHARDQ_SEED"])  # tests/report.py sees to it
    return settle(outcomes, run, seed, rerunning(environment))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
