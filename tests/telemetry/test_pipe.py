"""What a process tells through a pipe of what it has measured reaches the one that started it, also if it is killed."""

from __future__ import annotations

import os
import select
import signal
import struct
import subprocess
import sys
import threading
from typing import Any

import pytest

from shardq.telemetry.family import Family, packed
from shardq.telemetry.instruments import CONSUMED, SLOTS
from shardq.telemetry.pipe import Follower
from shardq.telemetry.sample import Sample
from tests.waiting import eventually


def counted(family: Family) -> dict[str, Any]:
    return {sample.instrument.text: sample.value for sample in family.samples()}


def framed(*samples: Sample) -> bytes:
    """Samples as a process tells them."""
    raw = packed(samples)
    return struct.pack(">I", len(raw)) + raw


def test_a_process_that_has_ended_is_no_longer_followed_though_its_pipe_is_open() -> None:
    """What was in the pipe is still taken; what is there in part is not."""
    family = Family(list)
    ours, theirs = os.pipe()
    try:
        follower = Follower(ours, family)
        os.write(theirs, framed(Sample(CONSUMED, (), 1), Sample(SLOTS, (), 4)))
        eventually(lambda: counted(family) == {CONSUMED.text: 1, SLOTS.text: 4})
        os.write(theirs, framed(Sample(CONSUMED, (), 7), Sample(SLOTS, (), 4)) + b"\0\0\1")
        follower.end()
        eventually(lambda: counted(family) == {CONSUMED.text: 7}, what="only what it has counted is left")
        with pytest.raises(BrokenPipeError):
            eventually(lambda: os.write(theirs, b"x") == 0)
    finally:
        os.close(theirs)


@pytest.mark.parametrize("raw", [b"\xff\xff\xff\xff", b"\0\0\0\3abc", b"\0\0\0\0", b"\0"])
def test_what_is_no_number_in_a_pipe_does_nothing(raw: bytes) -> None:
    family = Family(list)
    ours, theirs = os.pipe()
    follower = Follower(ours, family)
    os.write(theirs, framed(Sample(CONSUMED, (), 1)))
    os.write(theirs, raw)
    os.close(theirs)
    eventually(lambda: not [each for each in threading.enumerate() if each.name == "shardq-metrics"])
    follower.end()
    assert counted(family) in ({CONSUMED.text: 1}, {})


FORKS = """
import os, signal, sys
from shardq.telemetry.pipe import told_to

with told_to(int(sys.argv[1])):
    if (pid := os.fork()) == 0:
        sys.stdin.read()
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_worker_process_forks_does_not_hold_its_pipe() -> None:
    ours, theirs = os.pipe()
    command = [sys.executable, "-c", FORKS, str(theirs)]
    with subprocess.Popen(command, pass_fds=(theirs,), stdin=subprocess.PIPE) as process:
        os.close(theirs)
        assert process.wait(60) == -signal.SIGKILL
        assert select.select([ours], [], [], 60)[0], "the pipe has ended, while the forked process lives"
        assert os.read(ours, 1) == b""
    os.close(ours)
