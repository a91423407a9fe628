"""Commands that serve until a signal comes: it may come at any moment of their wait."""

from __future__ import annotations

import subprocess
import sys

import pytest

AT_EACH_LINE = """
import faulthandler, signal, sys
from shardq.cli.reloading import Reloader
from shardq.cli.serving import until_a_signal

HANGS = 60  # seconds after which it certainly hangs
WAIT = 0.001

def send_at(line, wait):
    left = [line]
    def trace(frame, event, arg):
        if event == "line" and left[0] >= 0:
            left[0] -= 1
            if left[0] < 0:
                sys.settrace(None)
                signal.raise_signal(signal.SIGTERM)
        return trace
    sys.settrace(trace)
    try:
        for _ in range(3):
            wait(WAIT)
    finally:
        sys.settrace(None)
    return left[0] < 0

def serving(line):
    with until_a_signal() as asked:
        sent = send_at(line, asked.wait)
        assert asked.wait(0) == sent
    return sent

def reloading(line):
    reloader = Reloader([], {}, None, None)
    before = signal.signal(signal.SIGTERM, reloader._forward)
    sent = send_at(line, reloader._stopped.wait)
    assert reloader._stopped.wait(0) == sent
    signal.signal(signal.SIGTERM, before)
    return sent

faulthandler.dump_traceback_later(HANGS, exit=True)
line = 0
while {what}(line):
    line += 1
print(line)
"""
"""Sends a signal at each line that Python runs of three waits, those of its own library among them."""


@pytest.mark.parametrize("what", ["serving", "reloading"])
def test_a_signal_at_any_moment_of_the_wait_ends_it(what: str) -> None:
    """Its handler may interrupt the wait where that holds a lock."""
    text = AT_EACH_LINE.replace("{what}", what)
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 5
