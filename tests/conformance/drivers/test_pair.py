"""An ack and a read in one round trip: whatever a server says to either, or does not say, both drivers report alike."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import hiredis
import pytest

from shardq.clock import SystemClock
from shardq.drivers import AsyncDriver, Driver, Target
from shardq.errors import ClosedError
from shardq.ops.queue.steps import Batch, Call, Refused, Unanswered
from shardq.protocol.keys import QueueKeys
from shardq.timing import LoopTimer

SOON = 15.0
ACKED = b"*2\r\n:1\r\n$1\r\no\r\n"
FOUND = b"*1\r\n$7\r\nNOQUEUE\r\n"
KEYS = QueueKeys("pair")
CALLS = (
    Call.on(KEYS, "settle", ("a", 0, 0, "", "here", "d:1-1:1:n:-:t")),
    Call.on(KEYS, "read", ("1 holder", "", "here")),
)


class Played:
    """A server that greets politely, and answers each pair with *answer*, which may be nothing. Then it may end."""

    def __init__(self, answer: bytes, ends: bool) -> None:
        self._answer, self._ends = answer, ends
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked = threading.Semaphore(0)
        self._ours: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        """End all threads."""
        for each in [self._listener, *self._ours]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(SOON)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._ours.append(connection)
                thread = threading.Thread(target=self._serve, args=(connection,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        more = object()
        reader, asked = hiredis.Reader(notEnoughData=more), 0
        with connection, suppress(OSError):
            while raw := connection.recv(65536):
                reader.feed(raw)
                while (words := reader.gets()) is not more:
                    if not words[0].startswith(b"FCALL"):
                        connection.sendall(b"+OK\r\n")
                        continue
                    asked += 1
                    if asked % 2 == 0:
                        self.asked.release()
                        connection.sendall(self._answer)
                        if self._ends:
                            return


@pytest.fixture
def play() -> Iterator[Callable[..., Played]]:
    """Makes servers, which end with the test."""
    made: list[Played] = []

    def make(answer: bytes, *, ends: bool = False) -> Played:
        made.append(Played(answer, ends))
        return made[-1]

    yield make
    for each in made:
        each.close()


def batch(seconds: float = SOON) -> Batch:
    """The pair, whose caller has so many seconds."""
    return Batch(CALLS, SystemClock().monotonic() + seconds, once=True)


@pytest.fixture(params=["threads", "asyncio"])
def ask(request: pytest.FixtureRequest) -> Callable[..., list[Any]]:
    """Makes one pair with a driver of this kind, *times* times over; the outcomes of the last one."""
    return _ask if request.param == "threads" else _ask_async


def _ask(url: str, seconds: float = SOON, times: int = 1) -> list[Any]:
    driver = Driver(Target.parse(url), max_connections=4, block=1)
    try:
        return list([driver.attempt(batch(seconds)) for _ in range(times)][-1])
    finally:
        driver.close()


def _ask_async(url: str, seconds: float = SOON, times: int = 1) -> list[Any]:
    async def run() -> list[Any]:
        driver = AsyncDriver(Target.parse(url), max_connections=4, block=1, timer=LoopTimer(asyncio.get_running_loop()))
        try:
            return list([await driver.attempt(batch(seconds)) for _ in range(times)][-1])
        finally:
            await driver.aclose()

    return asyncio.run(run())


def said(outcome: Any) -> Any:
    """A reply as it is, a failure in short."""
    if isinstance(outcome, Refused):
        return outcome.code
    return ("lost", outcome.sent) if isinstance(outcome, Unanswered) else outcome


def test_both_replies_come_in_order(play: Callable[..., Played], ask: Callable[..., list[Any]]) -> None:
    assert ask(play(ACKED + FOUND).url, times=3) == [[1, b"o"], [b"NOQUEUE"]]


@pytest.mark.parametrize(
    "refusal", [b"NOSCRIPT No matching script", b"READONLY a replica", b"WRONGTYPE no", b"OOM no", b"NOPERM no"]
)
def test_a_refusal_is_of_the_one_call_that_it_answers(
    play: Callable[..., Played], ask: Callable[..., list[Any]], refusal: bytes
) -> None:
    code, line = refusal.split()[0].decode(), b"-" + refusal + b"\r\n"
    assert [said(each) for each in ask(play(line + FOUND).url)] == [code, [b"NOQUEUE"]]
    assert [said(each) for each in ask(play(ACKED + line).url)] == [[1, b"o"], code]
    assert [said(each) for each in ask(play(line + line).url)] == [code, code]


def test_a_server_that_loads_its_data_refuses_or_counts_as_lost(
    play: Callable[..., Played], ask: Callable[..., list[Any]]
) -> None:
    """To redis-py it is a connection that was lost."""
    line = b"-LOADING wait\r\n"
    outcomes = [said(each) for each in ask(play(line + line).url)]
    assert outcomes in (["LOADING"] * 2, [("lost", True)] * 2)


@pytest.mark.parametrize("code", [b"MOVED", b"ASK"])
def test_a_redirection_of_either_is_an_outcome_and_nothing_is_sent_elsewhere(
    play: Callable[..., Played], ask: Callable[..., list[Any]], code: bytes
) -> None:
    """The ack must not run after the read, so the operation decides what is sent again."""
    line = b"-%b 7 127.0.0.1:1\r\n" % code
    outcomes = ask(play(line + FOUND).url)
    assert [said(each) for each in outcomes] == [code.decode(), [b"NOQUEUE"]]


@pytest.mark.parametrize("heard", [b"", ACKED, ACKED + FOUND[:5], ACKED[:3]])
def test_if_the_connection_ends_before_both_replies_both_may_have_happened(
    play: Callable[..., Played], ask: Callable[..., list[Any]], heard: bytes
) -> None:
    assert [said(each) for each in ask(play(heard, ends=True).url)] == [("lost", True)] * 2


def test_a_server_that_says_nothing_costs_the_callers_time_and_no_more(
    play: Callable[..., Played], ask: Callable[..., list[Any]]
) -> None:
    assert [said(each) for each in ask(play(b"").url, seconds=0.3)] == [("lost", True)] * 2


def test_without_a_server_neither_was_sent(ask: Callable[..., list[Any]]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert [said(each) for each in ask(f"redis://127.0.0.1:{port}")] == [("lost", False)] * 2


def test_a_surplus_reply_goes_to_no_later_caller(play: Callable[..., Played], ask: Callable[..., list[Any]]) -> None:
    server = play(ACKED + FOUND + b"+surplus\r\n")
    assert ask(server.url, times=3) == [[1, b"o"], [b"NOQUEUE"]]


def test_a_client_that_is_closed_meanwhile_says_so_at_once(play: Callable[..., Played]) -> None:
    server = play(b"")
    driver = Driver(Target.parse(server.url), max_connections=4, block=1)
    ended: list[Any] = []

    def work() -> None:
        try:
            ended.append(driver.attempt(batch(60)))
        except ClosedError as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert server.asked.acquire(timeout=SOON)
    driver.close()
    thread.join(SOON)
    assert not thread.is_alive()
    (outcome,) = ended
    assert isinstance(outcome, ClosedError) or [said(each) for each in outcome] == [("lost", True)] * 2
