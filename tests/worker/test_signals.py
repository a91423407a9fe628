"""The handler that all workers of a process share: who is stopped, what else is called, and what is put back."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from shardq.worker.signals import hosted, relay, stopping

BOTH = [signal.SIGTERM, signal.SIGINT]
each_signal = pytest.mark.parametrize("number", BOTH, ids=lambda number: number.name)


Send = Callable[[int], None]


class Ended(BaseException):
    """What `os._exit` raises here."""


class Workers:
    """Notes who was told what, instead of workers."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def running(self, name: str) -> Any:
        """The context in which worker *name* runs."""
        return stopping(lambda: self.told.append(name), lambda: self.told.append(f"{name} leaves"))


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Workers:
    def ended(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(os, "_exit", ended)
    return Workers()


@contextmanager
def handled(handler: Any, *numbers: signal.Signals) -> Iterator[None]:
    """Signals have the program's own *handler* here."""
    before = {number: signal.signal(number, handler) for number in numbers or BOTH}
    try:
        yield
    finally:
        for number, found in before.items():
            signal.signal(number, found)


class Elsewhere:
    """A worker that runs in another thread until it may leave."""

    def __init__(self, workers: Workers, name: str) -> None:
        self._context, self._joined, self._may_leave = workers.running(name), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._joined.wait(30)

    def _run(self) -> None:
        with self._context:
            self._joined.set()
            assert self._may_leave.wait(30)

    def leave(self) -> None:
        self._may_leave.set()
        self._thread.join(30)


@each_signal
def test_one_signal_stops_all_and_raises_nothing(workers: Workers, number: int) -> None:
    """Not even KeyboardInterrupt, which Ctrl-C is without a worker."""
    before = signal.getsignal(number)
    with workers.running("a"):
        shared = signal.getsignal(number)
        with workers.running("b"):
            assert signal.getsignal(number) is shared
            signal.raise_signal(number)
            assert workers.told == ["a", "b"]
    assert signal.getsignal(number) is before


def test_they_may_leave_in_any_order_and_the_last_one_puts_back_what_was_before(workers: Workers) -> None:
    before, stack = signal.getsignal(signal.SIGTERM), ExitStack()
    with workers.running("a"):
        stack.enter_context(workers.running("b"))
    assert signal.getsignal(signal.SIGTERM) is not before
    signal.raise_signal(signal.SIGTERM)
    stack.close()
    assert workers.told == ["b"]
    assert signal.getsignal(signal.SIGTERM) is before


@each_signal
def test_the_second_signal_ends_the_process_at_once(workers: Workers, number: int) -> None:
    with workers.running("a"), workers.running("b"):
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Ended) as ended:
            signal.raise_signal(number)
    assert ended.value.args == (128 + number,)
    assert workers.told == ["a", "b", "a leaves", "b leaves"]


@pytest.mark.parametrize(
    ("first", "second"), [(relay, signal.raise_signal), (signal.raise_signal, relay)], ids=["parent", "own"]
)
def test_a_signal_of_the_parent_and_one_s_own_are_one(workers: Workers, first: Send, second: Send) -> None:
    """A service manager tells each process of a group, and the parent hands on what it was told: in any order."""
    with workers.running("a"):
        first(signal.SIGTERM)
        second(signal.SIGTERM)
        assert "a leaves" not in workers.told
        with pytest.raises(Ended):
            relay(signal.SIGINT)
    assert workers.told[-1] == "a leaves"


def test_the_second_signal_of_one_s_own_ends_the_process_whatever_the_parent_said(workers: Workers) -> None:
    with workers.running("a"):
        relay(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Ended):
            signal.raise_signal(signal.SIGTERM)


def test_a_hangup_stops_all_and_ends_no_process_however_often_it_comes(workers: Workers) -> None:
    """A shell and the kernel both send it when a terminal closes, and some service managers beside SIGTERM."""
    with handled(signal.SIG_DFL, signal.SIGHUP):
        with workers.running("a"):
            for send in (signal.raise_signal, relay, signal.raise_signal):
                send(signal.SIGHUP)
            signal.raise_signal(signal.SIGTERM)
            assert workers.told == ["a"] * 4
            with pytest.raises(Ended):
                signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def test_who_begins_while_others_end_for_a_hangup_ends_too(workers: Workers) -> None:
    with handled(signal.SIG_DFL, signal.SIGHUP), workers.running("a"):
        signal.raise_signal(signal.SIGHUP)
        with workers.running("b"):
            assert workers.told == ["a", "b"]


def test_a_hangup_that_has_another_use_stops_nobody(workers: Workers) -> None:
    """Under nohup it is ignored, and many a program reads its settings anew."""
    told: list[int] = []
    for handler in (signal.SIG_IGN, lambda number, _: told.append(number)):
        with handled(handler, signal.SIGHUP), workers.running("a"):
            assert signal.getsignal(signal.SIGHUP) is handler
            signal.raise_signal(signal.SIGHUP)
    assert told == [signal.SIGHUP]
    assert workers.told == []


def test_a_hangup_of_the_parent_stops_one_for_whom_it_has_another_use(workers: Workers) -> None:
    """The parent means its processes to end, whatever the handlers' module does with that signal."""
    with handled(signal.SIG_IGN, signal.SIGHUP), workers.running("a"):
        relay(signal.SIGHUP)
        assert workers.told == ["a"]


def test_who_begins_while_others_end_for_a_signal_ends_too(workers: Workers) -> None:
    """Or a program that starts two workers and gets its signal between would work on."""
    with workers.running("a"):
        signal.raise_signal(signal.SIGTERM)
        with workers.running("b"):
            assert workers.told == ["a", "b"]
    with workers.running("c"):  # it begins when that is over
        assert workers.told == ["a", "b"]
        signal.raise_signal(signal.SIGTERM)  # which is the first one again
    assert workers.told == ["a", "b", "c"]


@each_signal
def test_the_program_s_own_handler_is_called_after_the_workers_are_stopped(workers: Workers, number: int) -> None:
    def own(number: int, _: object) -> None:
        workers.told.append(f"own {number}")

    with handled(own):
        with workers.running("a"), workers.running("b"):
            signal.raise_signal(number)
        assert signal.getsignal(number) is own
    assert workers.told == ["a", "b", f"own {number}"]


def test_what_the_program_s_own_handler_raises_comes_when_the_last_worker_has_ended(workers: Workers) -> None:
    """`sys.exit` in a handler of SIGTERM is common, and would end a worker in the middle of something."""
    with handled(lambda *_: sys.exit(3)), pytest.raises(SystemExit) as ended, workers.running("a"):  # noqa: PT012
        with workers.running("b"):
            signal.raise_signal(signal.SIGTERM)
        workers.told.append("b has ended")
    assert ended.value.code == 3
    assert workers.told == ["a", "b", "b has ended"]


def test_what_the_program_s_own_handler_raises_comes_once(workers: Workers) -> None:
    with handled(lambda *_: sys.exit(3)):
        other = Elsewhere(workers, "other")
        with pytest.raises(SystemExit), workers.running("main"):
            signal.raise_signal(signal.SIGTERM)
        with workers.running("main again"):
            other.leave()
    assert sorted(workers.told) == ["main", "main again", "other"]


def test_an_error_of_the_worker_comes_before_what_the_handler_raised(workers: Workers) -> None:
    with handled(lambda *_: sys.exit(3)), pytest.raises(ValueError, match="worker"), workers.running("a"):  # noqa: PT012
        signal.raise_signal(signal.SIGTERM)
        raise ValueError("the worker's")


def test_who_replaces_the_handler_meanwhile_keeps_the_signal(workers: Workers) -> None:
    def own(*_: object) -> None:
        workers.told.append("own")

    before = signal.getsignal(signal.SIGINT)
    with handled(signal.SIG_DFL):
        with workers.running("a"):
            signal.signal(signal.SIGTERM, own)
            with workers.running("b"):
                signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is own
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    assert workers.told == ["own"]
    assert signal.getsignal(signal.SIGINT) is before


def test_who_sets_the_handler_again_when_no_worker_runs_has_the_one_before(workers: Workers) -> None:
    """uvicorn sets at its end what was set at its start, and raises the signal once more."""
    told: list[int] = []
    with handled(lambda number, _: told.append(number)):
        with workers.running("a"):
            host = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with workers.running("b"):
            assert host is not signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, host)
        with workers.running("c"):
            assert not told
        signal.signal(signal.SIGTERM, host)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    assert told == [signal.SIGTERM] * 2
    assert workers.told == []


def test_a_worker_in_another_thread_is_stopped_with_those_of_the_main_thread(workers: Workers) -> None:
    before = signal.getsignal(signal.SIGTERM)
    other = Elsewhere(workers, "other")
    assert signal.getsignal(signal.SIGTERM) is before  # only the main thread can set a handler
    with workers.running("main"):
        signal.raise_signal(signal.SIGTERM)
    assert sorted(workers.told) == ["main", "other"]
    with pytest.raises(Ended):  # the other one still ends
        signal.raise_signal(signal.SIGTERM)
    with workers.running("main again"):
        other.leave()
        assert workers.told[-1] == "main again"
    assert signal.getsignal(signal.SIGTERM) is before


def test_signals_do_what_they_did_before_when_the_last_worker_has_left_in_another_thread(workers: Workers) -> None:
    told: list[int] = []

    def own(number: int, _: object) -> None:
        told.append(number)

    with handled(own, signal.SIGTERM), handled(signal.default_int_handler, signal.SIGINT):
        with workers.running("main"):
            other = Elsewhere(workers, "other")
        other.leave()
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == (own, signal.default_int_handler)
    assert told == [signal.SIGTERM]
    assert workers.told == []


def test_what_the_program_s_handler_raises_is_not_held_up_by_a_worker_in_another_thread(workers: Workers) -> None:
    """The main thread does something of the program's, which its handler means to end."""
    with handled(lambda *_: sys.exit(3)):
        with workers.running("main"):
            other = Elsewhere(workers, "other")
        with pytest.raises(SystemExit):
            signal.raise_signal(signal.SIGTERM)
        other.leave()
        with workers.running("main"):
            pass
    assert workers.told == ["other"]


def test_not_wanted_is_not_there(workers: Workers) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stopping(lambda: workers.told.append("unwanted"), lambda: None, wanted=False):
        assert signal.getsignal(signal.SIGTERM) is before
        with workers.running("a"):
            signal.raise_signal(signal.SIGTERM)
    assert workers.told == ["a"]


def test_a_host_has_a_handler_of_its_own(workers: Workers) -> None:
    assert not hosted()
    with handled(signal.SIG_IGN, signal.SIGINT):
        assert not hosted()
    with workers.running("a"):
        assert not hosted()
    for number in BOTH:
        with handled(lambda *_: None, number):
            assert hosted()
            with workers.running("a"):
                assert hosted()
            elsewhere: list[bool] = []
            thread = threading.Thread(target=lambda: elsewhere.append(hosted()))  # noqa: B023 (ended in here)
            thread.start()
            thread.join()
            assert elsewhere == [False]


@pytest.mark.parametrize("beneath", [False, True], ids=["alone", "beneath ours"])
def test_what_asyncio_run_does_for_ctrl_c_is_no_choice_of_a_host(workers: Workers, beneath: bool) -> None:
    """It would cancel the main task: handlers would be cancelled, instead of finishing in the grace."""

    async def main() -> list[bool]:
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        with workers.running("a") if beneath else ExitStack():
            found = [hosted()]
            if beneath:
                signal.raise_signal(signal.SIGINT)
                await asyncio.sleep(0)  # a main task that is cancelled ends here
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: None)
        found.append(hosted())
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
        return found

    with handled(signal.default_int_handler, signal.SIGINT), handled(signal.SIG_DFL, signal.SIGTERM):
        assert asyncio.run(main()) == [False, True]


def test_a_handler_of_the_loop_is_called_too_by_one_who_takes_signals_all_the_same(workers: Workers) -> None:
    async def main() -> None:
        loop, called = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, called.set)
        before = signal.getsignal(signal.SIGTERM)
        with workers.running("a"):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(called.wait(), 30)
        assert signal.getsignal(signal.SIGTERM) is before
        loop.remove_signal_handler(signal.SIGTERM)

    with handled(signal.SIG_DFL, signal.SIGTERM):
        asyncio.run(main())
    assert workers.told == ["a"]


FORKS = """
import os, signal
from shardq.worker.signals import stopping

with stopping(lambda: None, lambda: None):
    shared = signal.signal(signal.SIGINT, lambda *given: shared(*given))
    if not (child := os.fork()):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            os.kill(os.getpid(), signal.SIGTERM)
        os._exit(1)
    _, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_child_of_a_worker_ends_by_a_signal() -> None:
    """It has none of the threads that would stop, and `multiprocessing` ends its processes by SIGTERM."""
    told = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=60)
    assert (told.stdout, told.stderr) == (f"{-signal.SIGTERM}\n", "")
