"""Timers in real processes: suspended ones, forked ones, ones that just end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from shardq.timing import Bucket, Callback, ThreadTimer
from shardq.timing.move import MOVE
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
EARLIER = 3

TICKING = """
import sys, threading
from shardq.timing import ThreadTimer

done = threading.Event()
timer = ThreadTimer()
for number in range(100):
    timer.call_later(0.3 + number * 0.005, print, number)
timer.call_later(0.9, done.set)
print("ready", flush=True)
done.wait()
"""


def start(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.runs_in("test-all")
def test_a_suspended_process_catches_up_once_and_in_order() -> None:
    """SIGSTOP, everything falls due, SIGCONT: each callback runs once, the earliest first."""
    with start(TICKING) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        eventually(lambda: time.monotonic() > stopped + 1.0)
        child.send_signal(signal.SIGCONT)
        told, _ = child.communicate(timeout=30)

    assert [int(line) for line in told.split()] == list(range(100))
    assert child.returncode == 0


def test_a_process_with_a_timer_ends_by_itself() -> None:
    """The thread is a daemon: pending entries keep nobody alive."""
    with start("from shardq.timing import ThreadTimer\nThreadTimer().call_later(1000, print)") as child:
        assert child.wait(30) == 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_timer_works_in_a_forked_child() -> None:
    """With a thread of its own; what was pending in the parent runs there, and only there."""
    delays = iter((0.2, 1, 5))  # until the fork comes before the entry is due
    status = EARLIER
    while status == EARLIER:
        delay = next(delays)
        ran = threading.Event()
        with ThreadTimer() as timer:
            entry = timer.call_later(delay, ran.set)
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    own = threading.Event()
                    earlier, empty = ran.is_set(), len(timer) == 0
                    timer.call_later(0.001, own.set)
                    alone = own.wait(20) and empty and not ran.wait(2 * delay)
                    status = EARLIER if earlier else 0 if alone else 2
                finally:
                    os._exit(status)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

            assert status in (0, EARLIER)
            assert ran.wait(20)
            assert not entry.pending


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_in_the_middle_of_everything_leaves_a_timer_that_works() -> None:
    """Other threads hold the locks of the timer at the moment of the fork: the child makes its own."""
    stop = threading.Event()
    with ThreadTimer(wheel_size=4) as timer:

        def busy() -> None:
            while not stop.is_set():
                timer.call_later(0.002, id, 1)

        threads = [threading.Thread(target=busy) for _ in range(3)]
        for thread in threads:
            thread.start()
        codes = []
        for _ in range(10):
            child = os.fork()
            if child == 0:
                own = threading.Event()
                timer.call_later(0.001, own.set)
                os._exit(0 if own.wait(20) else 1)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        stop.set()
        for thread in threads:
            thread.join()

    assert codes == [0] * 10


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_cancel_in_a_forked_child_does_not_wait_for_a_thread_of_the_parent() -> None:
    """Another thread was moving entries at the moment of the fork: the child has a lock of its own."""
    held, forked = threading.Event(), threading.Event()
    entry = Callback(print)
    entry.bucket = Bucket()  # taken out by another thread, which has not said so yet

    def move() -> None:
        with MOVE.lock:
            held.set()
            forked.wait(20)

    mover = threading.Thread(target=move)
    mover.start()
    assert held.wait(20)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        os._exit(2 if entry.cancel() else 0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    forked.set()
    mover.join()
    assert code == 0
