"""A link of a thread, against a server that a test plays: pieces, packets, silence, garbage, and the end."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import redis

from shardq.drivers import Driver, Target
from shardq.drivers.exchanges import Exchange, Together
from shardq.drivers.links import TRUSTED_SECONDS, AskedLink, Link, Links, LinkTicket
from shardq.drivers.permits import AllBusy
from shardq.errors import ClosedError
from shardq.ops.queue.steps import Refused, Unanswered, Withdrawn
from shardq.testing import ManualClock
from tests.waiting import eventually

SILENCE = 20.0
LARGE = 8_000_000
PLACE = (None, False)


@pytest.fixture
def ends() -> Iterator[tuple[Link, socket.socket]]:
    """A link, and the server's end of it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(SILENCE)
        yield Link(SimpleNamespace(_sock=ours)), theirs


def test_answers_come_in_one_packet_or_byte_by_byte(ends: tuple[Link, socket.socket]) -> None:
    link, server = ends
    server.sendall(b":1\r\n$2\r\nab\r\n")
    assert link.ask(b"two", 2, SILENCE) == [1, b"ab"]
    assert server.recv(99) == b"two"

    def trickle() -> None:
        for byte in b"*2\r\n$2\r\nab\r\n:7\r\n":
            server.sendall(bytes([byte]))

    thread = threading.Thread(target=trickle)
    thread.start()
    assert link.ask(b"one", 1, SILENCE) == [[b"ab", 7]]
    thread.join()
    assert link.is_clean()
    assert link.is_sound()


def test_a_refusal_is_an_answer_and_those_after_it_are_read(ends: tuple[Link, socket.socket]) -> None:
    link, server = ends
    server.sendall(b"-READONLY You can't write\r\n-ERR no such thing\r\n-LOADING wait\r\n:3\r\n")
    readonly, error, loading, three = link.ask(b"?", 4, SILENCE)
    assert [each.code for each in (readonly, error, loading)] == ["READONLY", "ERR", "LOADING"]
    assert isinstance(readonly, Refused)
    assert three == 3


def test_a_server_that_closes_or_talks_nonsense_is_a_lost_one(ends: tuple[Link, socket.socket]) -> None:
    link, server = ends
    server.sendall(b"?what\r\n")
    with pytest.raises(redis.InvalidResponse):
        link.ask(b"?", 1, SILENCE)
    server.sendall(b"$5\r\nab")
    server.close()
    assert not link.is_sound()
    with pytest.raises((redis.ConnectionError, redis.InvalidResponse, OSError)):
        link.ask(b"?", 1, SILENCE)


def test_silence_ends_with_the_callers_time_but_not_while_the_answer_comes(ends: tuple[Link, socket.socket]) -> None:
    link, server = ends
    started = time.monotonic()
    with pytest.raises(redis.TimeoutError, match=r"no answer for 0\.05 s"):
        link.ask(b"?", 1, 0.05)
    assert time.monotonic() - started < SILENCE / 2
    server.sendall(b"$4\r\n")
    late = threading.Timer(0.2, server.sendall, [b"late\r\n"])
    late.start()
    assert link.ask(b"?", 1, 0.05) == [b"late"]
    late.join()


@pytest.mark.parametrize(("then", "is_told"), [(1.9999, False), (2.0001, False), (1.9, True), (2.1, True)])
def test_the_kernel_is_told_again_how_long_to_wait_only_if_it_differs(
    ends: tuple[Link, socket.socket], then: float, is_told: bool
) -> None:
    """Callers give up at some time: for how long that is differs a little from call to call."""
    link, server = ends
    told = list[float]()
    for limit in (2.0, then):
        server.sendall(b":1\r\n")
        link.ask(b"?", 1, limit)
        seconds, part = struct.unpack("@ll", link._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16))
        told.append(seconds + part / 1e6)
        assert limit <= told[-1] <= limit * 1.02
    assert (told[0] != told[1]) == is_told


def test_what_is_larger_than_all_buffers_goes_through(ends: tuple[Link, socket.socket]) -> None:
    link, server = ends

    def serve() -> int:
        got = 0
        while got < LARGE:
            got += len(server.recv(10_000))
        server.sendall(b"$%d\r\n%b\r\n" % (LARGE, b"r" * LARGE))
        return got

    with ThreadPoolExecutor(1) as pool:
        served = pool.submit(serve)
        (answer,) = link.ask(b"q" * LARGE, 1, SILENCE)
        assert len(answer) == served.result(SILENCE) == LARGE


def test_a_server_that_does_not_take_a_request_is_silent(ends: tuple[Link, socket.socket]) -> None:
    link, _ = ends
    with pytest.raises(redis.TimeoutError):
        link.ask(b"q" * LARGE, 1, 0.05)


def test_what_comes_unasked_makes_a_link_unfit(ends: tuple[Link, socket.socket]) -> None:
    link, server = ends
    server.sendall(b":1\r\n:2\r\n")
    assert link.ask(b"?", 1, SILENCE) == [1]
    assert not link.is_clean()


class Pool:
    """Makes connections, of which the test has the other ends."""

    def __init__(self) -> None:
        self.made: list[tuple[Any, socket.socket]] = []
        self.released: list[Any] = []

    def get_connection(self) -> Any:
        """A connection as redis-py hands it out."""
        ours, theirs = socket.socketpair()
        ours.settimeout(SILENCE)
        connection = SimpleNamespace(_sock=ours, disconnect=ours.close, host="h", port=1)
        self.made.append((connection, theirs))
        return connection

    def release(self, connection: Any) -> None:
        """Take one back."""
        self.released.append(connection)


@pytest.fixture
def pool() -> Iterator[Pool]:
    """An empty pool."""
    pool = Pool()
    yield pool
    for connection, server in pool.made:
        connection.disconnect()
        server.close()


class OnePool(dict[Any, Pool]):
    """Pools, of which there is one."""

    closed = False
    most_idle = 0.0


def links_of(pool: Pool, clock: ManualClock, *, most_idle: float = 0, most: int = 9) -> Links:
    """The links of *pool*."""
    pools: Any = OnePool({PLACE: pool})
    pools.most_idle = most_idle
    return Links(pools, PLACE, Pool.get_connection, clock.monotonic, most=most, silence=SILENCE)


def test_the_link_that_was_used_last_is_used_next(pool: Pool) -> None:
    links = links_of(pool, ManualClock())
    first, second = links.take(), links.take()
    links.give(first)
    links.give(second)
    assert [links.take(), links.take()] == [second, first]
    assert len(pool.made) == 2


def test_after_a_while_a_link_is_looked_at_before_it_is_used(pool: Pool) -> None:
    clock = ManualClock()
    links = links_of(pool, clock)
    link = links.take()
    links.give(link)
    clock.advance(2 * TRUSTED_SECONDS)
    assert links.take() is link
    links.give(link)
    pool.made[0][1].close()  # the server is gone
    clock.advance(2 * TRUSTED_SECONDS)
    other = links.take()
    assert other is not link
    assert pool.released == [link.connection]


def test_a_link_that_was_idle_for_too_long_is_not_used_again(pool: Pool) -> None:
    clock = ManualClock()
    links = links_of(pool, clock, most_idle=30)
    link = links.take()
    links.give(link)
    clock.advance(29)
    assert links.take() is link
    links.give(link)
    clock.advance(30)
    assert links.take() is not link
    assert pool.released == [link.connection]


def test_links_to_a_node_that_is_no_master_any_more_are_dropped(pool: Pool) -> None:
    links = links_of(pool, ManualClock())
    link = links.take()
    links.give(link)
    links.drop_idle()
    assert pool.released == [link.connection]
    assert links.take() is not link


def test_a_link_to_a_former_master_is_not_used_when_the_sentinels_name_another(pool: Pool) -> None:
    pool.master_address = ("h", 1)  # type: ignore[attr-defined] # as pools with sentinels have it
    links = links_of(pool, ManualClock())
    link = links.take()
    links.give(link)
    assert links.take() is link
    links.give(link)
    pool.master_address = ("other", 2)  # type: ignore[attr-defined]
    assert links.take() is not link


def test_a_place_that_comes_at_the_last_moment_is_not_lost(pool: Pool) -> None:
    """Who gave up just when a link was handed to them, hands it on; and so with the right to make one."""
    for give in (Links.give, Links.drop):
        links, late = links_of(pool, ManualClock(), most=1), LinkTicket()
        link = links.take()
        links._waiting.append(late)
        give(links, link)
        assert late.lock.acquire(blocking=False)
        links._leave(late)
        assert (links.take() is link) == (give is Links.give)


def test_a_link_that_cannot_be_made_leaves_its_place_to_others(pool: Pool) -> None:
    links = links_of(pool, ManualClock(), most=1)
    links._connect = Mock(side_effect=[Unanswered("no route", sent=False), pool.get_connection()])
    with pytest.raises(Unanswered):
        links.take()
    assert links.take().peer == ""
    with pytest.raises(AllBusy, match="all 1 connections"):
        links.take(0)


def test_a_caller_that_waited_while_the_client_was_closed_sends_nothing(pool: Pool) -> None:
    links = links_of(pool, ManualClock(), most=1)
    link, asked = links.take(), threading.Event()
    with ThreadPoolExecutor() as threads:
        waits = threads.submit(links.ask, b"?", 1, 9.0, on_send=asked.set)
        eventually(lambda: len(links._waiting) == 1)
        links._pools.closed = True
        links.drop(link)
        with pytest.raises(ClosedError):
            waits.result(30)
    assert not asked.is_set()
    assert links._spare == 1


def test_a_client_that_is_closed_while_it_connects_says_so(pool: Pool) -> None:
    """Its connections are closed from another thread, also one that was made just now: it has no socket any more."""

    def closing(pool: Pool) -> Any:
        links._pools.closed = True
        return SimpleNamespace(_sock=None)

    links = links_of(pool, ManualClock(), most=1)
    links._connect = closing
    with pytest.raises(ClosedError):
        links.ask(b"?", 1, 9.0)
    assert links._spare == 1


def begun_on(links: Links) -> AskedLink:
    """A request of two answers that was begun."""
    asked = links.begin(b"two", 2)
    assert asked is not None
    return asked


def test_what_is_begun_takes_an_idle_link_and_makes_none(pool: Pool) -> None:
    """Who holds another link meanwhile must wait for nobody."""
    links = links_of(pool, ManualClock(), most=1)
    assert links.begin(b"?", 1) is None
    links.give(links.take())
    asked = begun_on(links)
    assert links.begin(b"?", 1) is None
    pool.made[0][1].sendall(b":1\r\n-OOM no\r\n")
    one, refused = asked.answers(SILENCE)
    assert (one, refused.code) == (1, "OOM")
    asked.give_up()  # it is over
    assert links.take() is asked.link
    links._waiting.append(LinkTicket())  # who waits goes first
    links.give(asked.link)
    assert links.begin(b"?", 1) is None


@pytest.mark.parametrize("end", ["silence", "the end", "nobody waits"])
def test_what_was_begun_and_gets_no_answer_leaves_its_place_to_others(pool: Pool, end: str) -> None:
    links = links_of(pool, ManualClock(), most=1)
    links.give(links.take())
    asked = begun_on(links)
    if end == "the end":
        pool.made[0][1].close()
    if end == "nobody waits":
        asked.give_up()
    else:
        with pytest.raises(Unanswered) as failed:
            asked.answers(0.05)
        assert failed.value.sent
    assert links.take(0) is not asked.link  # an answer may yet come on that one
    assert pool.released == [asked.link.connection]


def test_nodes_that_are_silent_together_are_waited_for_once(pool: Pool) -> None:
    """The time counts from when the request was sent: the wait for another node's answer was before."""
    clock = ManualClock()
    links = links_of(pool, clock)
    links.give(links.take())
    asked = begun_on(links)
    asked.link.gather = gathered = Mock(return_value=False)  # type: ignore[method-assign]
    clock.advance(SILENCE - 1)
    with pytest.raises(Unanswered):
        asked.answers(SILENCE)
    ((_, count, seconds), _) = gathered.call_args
    assert (count, seconds) == (2, pytest.approx(1))


def test_the_wait_for_another_node_counts_once(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five seconds are left for each, of which the first answer takes three: two for the next one, and not none."""
    clock = ManualClock()
    driver = Driver(Target.parse("redis://localhost"), max_connections=1, block=1, clock=clock)
    links = links_of(pool, clock)
    monkeypatch.setattr(driver, "_links_to", Mock(return_value=links))
    waits: list[float] = []

    def gather(_: Link, answers: list[Any], _count: int, seconds: float) -> bool:
        waits.append(seconds)
        clock.advance(3)
        answers.append(1)
        return True

    monkeypatch.setattr(Link, "gather", gather)
    for link in [links.take(), links.take()]:
        links.give(link)
    exchange = Exchange(None, (("PING",),), clock.monotonic() + 6)
    assert driver._carry_out_all(Together((exchange, exchange))) == [[1], [1]]
    assert waits == pytest.approx([driver._timeout, min(driver._timeout - 3, 3)])


def test_what_is_withdrawn_before_it_is_begun_leaves_its_link_to_others(pool: Pool) -> None:
    links = links_of(pool, ManualClock(), most=1)
    link = links.take()
    links.give(link)
    with pytest.raises(Withdrawn):
        links.begin(b"?", 1, on_send=Mock(side_effect=Withdrawn))
    assert links.take(0) is link
    assert not pool.released
