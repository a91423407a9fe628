"""The pictures of docs/telemetry.md are made by a program that runs as the page says it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.runs_in("test-all")


def test_it_prints_the_spans_of_a_message_and_p99_by_the_buckets() -> None:
    """In a process of its own: it sets the providers of OpenTelemetry, which a process has once."""
    command = [sys.executable, "-m", "benchmarks.traced"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[2])
    assert told.returncode == 0, told.stderr
    names = re.findall(r"^(\w+ \S+) +[\d.]+ ms, links: \d$", told.stdout, re.MULTILINE)
    assert {*names} >= {"POST /orders", "write mails", "read mails", "process mails", "ack mails"}
    p99 = r"^\w+: \d+ jobs, p99 by the buckets \S+ m?s, by its own clock \S+ m?s$"
    assert len(re.findall(p99, told.stdout, re.MULTILINE)) == 2
