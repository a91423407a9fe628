"""What a test run says about itself: its random seed, and last the servers that were tested and the house's notes.

A test or fixture adds to the end with `record_property("server", "valkey 9.1.2")` or `record_property("note", ...)`.
`SHARDQ_SEED` repeats a run's random choices.
"""

from __future__ import annotations

import os
import random
import zlib
from collections import Counter
from itertools import chain

import hypothesis
import pytest

SEED = int(os.environ.get("SHARDQ_SEED") or random.SystemRandom().randrange(2**32))

# A shared machine is no place for deadlines per example; the blob that it prints repeats a failure.
hypothesis.settings.register_profile("shardq", deadline=None, print_blob=True)
hypothesis.settings.load_profile("shardq")


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Random choices that differ between runs and between tests, and that SHARDQ_SEED repeats."""
    return random.Random(SEED + zlib.crc32(request.node.nodeid.encode()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the tests recorded; the report of a test's teardown has all that its fixtures did, too."""
    reports = chain.from_iterable(terminalreporter.stats.values())
    done = (report for report in reports if getattr(report, "when", None) == "teardown")
    properties = [each for report in done for each in report.user_properties]
    for note in dict.fromkeys(str(value) for name, value in properties if name == "note"):
        terminalreporter.write_line(f"note: {note}")
    servers = Counter(str(value) for name, value in properties if name == "server")
    if servers:
        tested = ", ".join(f"{server} ({count} tests)" for server, count in sorted(servers.items()))
        terminalreporter.write_line(f"servers tested: {tested}")
    terminalreporter.write_line(f"random seed: SHARDQ_SEED={SEED}")
