"""What a test run says about itself, last of all: servers, slow tests, what was left out, minutes, and its seed.

A test or fixture adds to the end with `record_property("server", "valkey 9.1.2")` or `record_property("note", ...)`.
`SHARDQ_SEED` repeats a run's random choices; a run in several processes has one.
"""

from __future__ import annotations

import os
import random
import resource
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import chain

import hypothesis
import pytest

from tests import parts
from tests.outcomes import break_run

SEED = int(os.environ.setdefault("SHARDQ_SEED", str(random.SystemRandom().randrange(2**32))))
BEGUN = time.monotonic()
SLOWEST = 10  # tests, which are named whatever they took
LONG = 30.0  # seconds; who takes more is named, too

# A shared machine is no place for deadlines, per example or on making them; the blob that it prints repeats a failure.
hypothesis.settings.register_profile(
    "shardq", deadline=None, print_blob=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("shardq")


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Random choices that differ between runs and between tests, and that SHARDQ_SEED repeats."""
    return random.Random(SEED + zlib.crc32(request.node.nodeid.encode()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the tests recorded; the report of a test's teardown has all that its fixtures did, too."""
    reports = [
        each for each in chain.from_iterable(terminalreporter.stats.values()) if isinstance(each, pytest.TestReport)
    ]
    properties = [each for report in reports if report.when == "teardown" for each in report.user_properties]
    notes = [f"note: {value}" for value in dict.fromkeys(str(value) for name, value in properties if name == "note")]
    servers = Counter(str(value) for name, value in properties if name == "server")
    if servers:
        told = ", ".join(f"{server} ({count} tests)" for server, count in sorted(servers.items()))
        notes.append(f"servers tested: {told}")
    notes += slowest(reports)
    for line in [
        *notes,
        *differing(terminalreporter),
        *left_out(terminalreporter),
        _spent(),
        f"random seed: SHARDQ_SEED={SEED}",
    ]:
        terminalreporter.write_line(line)


def slowest(reports: Iterable[pytest.TestReport]) -> list[str]:
    """A line for each of the tests that took longest, with setup and teardown, and for all that took long."""
    seconds = defaultdict[str, float](float)
    for report in reports:
        seconds[report.nodeid] += report.duration
    ranked = enumerate(sorted(seconds.items(), key=lambda each: -each[1]))
    return [f"slowest: {each:.1f} s {test[:200]}" for number, (test, each) in ranked if number < SLOWEST or each > LONG]


def skips(terminalreporter: pytest.TerminalReporter) -> Counter[str]:
    """For which reasons tests were skipped, and how many."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [str(each.longrepr[2] if isinstance(each.longrepr, tuple) else each.longrepr) for each in skipped]
    return Counter(reason.removeprefix("Skipped: ") for reason in reasons)


def left_out(terminalreporter: pytest.TerminalReporter) -> list[str]:
    """What did not run, a line for each reason."""
    lines = [f"{reason} ({count} skipped)" for reason, count in skips(terminalreporter).items()]
    if not parts.REDIS.is_there() and str(parts.REDIS) not in skips(terminalreporter):
        lines.append(str(parts.REDIS))  # there are no tests on it that could be skipped
    lines += [f"{path}, as was asked for" for path in terminalreporter.config.option.ignore or ()]
    return [f"left out: {line}" for line in sorted(lines)]


def differing(terminalreporter: pytest.TerminalReporter) -> list[str]:
    """What does not hold, and is listed so, a line for each reason."""
    reasons = Counter(each.wasxfail for each in terminalreporter.stats.get("xfailed", []))
    return [
        f"as listed: {reason.removeprefix('reason: ')} ({count} tests)" for reason, count in sorted(reasons.items())
    ]


def _spent() -> str:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(each.ru_utime + each.ru_stime for each in used)
    return f"took {(time.monotonic() - BEGUN) / 60:.1f} minutes, {seconds:.0f} s of processor time"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that skipped a test for no reason that is on the list, or, where all parts are needed, for any."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workeroutput"):  # a process of the run tells another
        return
    reasons = parts.unexplained(skips(reporter))
    broken = [f"skipped, and tests/parts.py has no such part: {reason}" for reason in reasons]
    if parts.ALL_NEEDED:
        excused = [str(part) for part in parts.PARTS if part.is_optional]
        lines = [line for line in left_out(reporter) if not any(each in line for each in excused)]
        broken += [f"SHARDQ_PARTS=all, but {line}" for line in lines]
    for line in broken:
        break_run(session, line)
