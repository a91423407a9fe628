"""What a test run says about itself: its random seed, and last the servers that were tested and the house's notes.

A test or fixture adds to the end with `record_property("server", "valkey 9.1.2")` or `record_property("note", ...)`.
`SHARDQ_SEED` repeats a run's random choices; a run in several processes has one.
"""

from __future__ import annotations

import os
import random
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import chain
from operator import itemgetter

import hypothesis
import pytest

SEED = int(os.environ.setdefault("SHARDQ_SEED", str(random.SystemRandom().randrange(2**32))))
NEAR = 5.5 * 60  # seconds: with Spark's, which take four more, the tests may take 10 minutes on two cores
SLOWEST = 12
BEGUN = time.monotonic()

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
    reports = [each for each in chain.from_iterable(terminalreporter.stats.values()) if hasattr(each, "when")]
    properties = [each for report in reports if report.when == "teardown" for each in report.user_properties]
    for note in dict.fromkeys(str(value) for name, value in properties if name == "note"):
        terminalreporter.write_line(f"note: {note}")
    for line in left_out(terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(line)
    is_soak = "soak" in terminalreporter.config.option.markexpr  # it is long by nature
    for line in [] if is_soak else growth(time.monotonic() - BEGUN, reports):
        terminalreporter.write_line(line)
    servers = Counter(str(value) for name, value in properties if name == "server")
    if servers:
        tested = ", ".join(f"{server} ({count} tests)" for server, count in sorted(servers.items()))
        terminalreporter.write_line(f"servers tested: {tested}")
    terminalreporter.write_line(f"random seed: SHARDQ_SEED={SEED}")


def left_out(skipped: Iterable[pytest.TestReport | pytest.CollectReport]) -> list[str]:
    """Why tests were skipped, a line for each reason."""
    why = Counter(str(each.longrepr[2]) if isinstance(each.longrepr, tuple) else str(each.longrepr) for each in skipped)
    return [f"note: skipped ({count}): {reason.removeprefix('Skipped: ')}" for reason, count in sorted(why.items())]


def growth(took: float, reports: Iterable[pytest.TestReport]) -> list[str]:
    """What to say of a run that took `took` seconds: nothing, or near the suite's bound that, and its slowest tests."""
    if took < NEAR:
        return []
    spent: defaultdict[str, float] = defaultdict(float)
    for report in reports:
        spent[report.nodeid] += report.duration
    slowest = sorted(spent.items(), key=itemgetter(1), reverse=True)[:SLOWEST]
    named = [f"  {seconds:5.1f} s  {test}" for test, seconds in slowest]
    return [f"note: the tests took {took / 60:.1f} min, near their bound (10 with Spark's); the slowest:", *named]
