"""How the tests of a run ended, and what else made it fail: for programs that run pytest and judge what they see.

An exit status does not say which of the two it was. tests/gate.py and tests/flicker.py need to know.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

BROKEN: Final = pytest.StashKey[list[str]]()
MAX_SHOWN: Final = 20  # tests whose failure is kept, not only their names
MAX_FAILURE: Final = 30_000  # letters of a failure

# Not `-m tests.outcomes`: the plugins of the run would import this module once more, with another BROKEN.
_PROGRAM: Final = "import sys; from tests import outcomes; sys.exit(outcomes.tell(sys.argv[1], sys.argv[2:]))"


def break_run(session: pytest.Session, why: str) -> None:
    """Make the run fail for something that is not the failure of one test."""
    session.config.get_terminal_writer().line(f"\n{why}", red=True)
    session.config.stash.setdefault(BROKEN, []).append(why)
    session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


@dataclass(eq=False)
class Outcomes:
    """A plugin of pytest that notes how each test of one run ended."""

    passed: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    """What pytest shows of a failure, by test; of a setup and a teardown, too."""
    broken: list[str] = field(default_factory=list)
    """What made the run fail but no test's failure."""

    @property
    def is_good(self) -> bool:
        """Whether the run passed."""
        return not self.failed and not self.broken

    def run(self, words: Sequence[str]) -> int:
        """Run pytest in this process; return its exit status."""
        status = int(pytest.main([*words], plugins=[self]))
        if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            self.broken.append(f"pytest ended with status {status}")
        elif status and not self.failed and not self.broken:
            self.broken.append("the run failed, but no test")
        return status

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test has a report of its setup, one of itself, and one of its teardown; if its process died, only one."""
        if report.failed:
            self.passed.discard(report.nodeid)
            known = self.failed.get(report.nodeid, "")
            shown = known or len(self.failed) < MAX_SHOWN
            self.failed[report.nodeid] = shortened(f"{known}{_text(report)}") if shown else ""
        elif report.passed and report.when == "call":
            self.passed.add(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """What cannot be collected holds tests of which nothing is known."""
        if report.failed:
            self.broken.append(f"{report.nodeid} could not be collected")

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # after all that may break the run
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        """Note what broke the run, and whether it left out tests, as after -x."""
        yield
        broken: list[str] = session.config.stash.get(BROKEN, [])
        self.broken += broken
        if session.shouldfail or session.shouldstop:
            self.broken.append("it did not run all tests")


def _text(report: pytest.TestReport) -> str:
    parts = [report.longreprtext, *(f"{f' {title} ':-^80}\n{text}" for title, text in report.sections)]
    return "".join(f"{part.rstrip()}\n" for part in parts)


def shortened(text: str, most: int = MAX_FAILURE) -> str:
    """The *text*, of which only *most* letters stay: its beginning and its end."""
    gone, half = len(text) - most, most // 2
    return text if gone <= 0 else f"{text[:half]}\n[{gone} letters are left out]\n{text[-half:]}"


def tell(path: str, words: Sequence[str]) -> int:
    """Run pytest and write to *path* how it went; return its exit status."""
    outcomes = Outcomes()
    status = outcomes.run(words)
    told = {"status": status, **vars(outcomes), "passed": sorted(outcomes.passed)}
    Path(path).write_text(json.dumps(told))
    return status


def run_apart(
    words: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    timeout: float | None = None,
    python: str = sys.executable,
) -> Outcomes:
    """Run pytest in a process of its own, which prints into *log* and is killed after *timeout* seconds.

    *python* may be that of another environment.
    """
    with tempfile.TemporaryDirectory(prefix="shardq-outcomes-") as folder, log.open("w") as file:
        path = Path(folder) / "outcomes.json"
        command = [python, "-c", _PROGRAM, str(path), *words]
        try:
            ended = subprocess.run(command, env=environment, stdout=file, stderr=file, timeout=timeout)
        except subprocess.TimeoutExpired:
            return Outcomes(broken=[f"it was ended after {timeout:.0f} s"])
        told = json.loads(path.read_text()) if path.exists() else {}
    if told.get("status") != ended.returncode:  # it crashed
        return Outcomes(broken=[f"pytest ended with status {ended.returncode}"])
    return Outcomes(set(told["passed"]), told["failed"], told["broken"])
