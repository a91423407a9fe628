"""Links: connections of threads, on which the driver itself sends and receives, a few to each node.

redis-py finds the node, connects, and says hello, with TLS and a password where they are wanted. Then its socket is
taken over: for each call redis-py's pool, its checks and its wrappers would take as long as all the rest of the client.
The pool continues to regard the connection as in use, so that closing the pool closes it, too.
"""

from __future__ import annotations

import _socket
import math
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Any, Final, TypeAlias

import redis

from shardq.drivers.failures import CONNECTION_ERRORS, answer_of, demoted, unanswered
from shardq.drivers.permits import MAX_WAIT, MIN_TRY, AllBusy
from shardq.drivers.pools import Pools, leads_to_master
from shardq.drivers.readiness import WAITS, ServerReadiness
from shardq.drivers.resp import INCOMPLETE, new_parser
from shardq.drivers.target import Address
from shardq.drivers.wire import CLOSED_MEANWHILE, Command, packed
from shardq.errors import ClosedError
from shardq.ops.queue.steps import Refused, Unanswered

RECEIVED: Final = 64 * 1024
"""Bytes that are received at once."""

TRUSTED_SECONDS: Final = 0.01
"""Seconds for which a link that was used is taken to be sound. After them it is looked at before it is used again."""

LENIENCE: Final = 0.01
"""A link may wait longer than its limit by this part: to set the limit in the kernel for each call takes a system call
more.
"""

CLOSED: Final = (AttributeError, TypeError, ValueError, OSError)
"""The errors that redis-py may raise when another thread closes the connection during a call."""

FollowUp: TypeAlias = Callable[[list[Any]], tuple[Command, ...]]
"""Returns what else to send, given the answers; () if these are those that were wanted."""

_NOT_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Link:
    """A connection of redis-py whose socket was taken over. `peer` is the address of its other end.

    `number` is the id that the server gave the connection, None as long as nobody has asked.

    The kernel waits for what arrives, until the limit of the socket (SO_RCVTIMEO): one system call. Python's own
    timeouts take two. A socket with TLS, or one of a library that replaces Python's, does not block, and
    `ServerReadiness` waits for it; so it does on Windows.
    """

    def __init__(self, connection: Any) -> None:
        self.connection, self.peer = connection, _peer_of(connection)
        self.number: int | None = None
        self.used_at = 0.0
        self._socket = connection._sock
        self._silence = self._socket.gettimeout()
        self._waits = WAITS and type(self._socket).recv_into is _socket.socket.recv_into
        self._socket.setblocking(self._waits)
        self._patience = 0.0
        self._decrypted: Callable[[], int] | None = getattr(self._socket, "pending", None)  # only with TLS
        self._readable = ServerReadiness(self._socket)
        self._parser = new_parser()
        self._buffer = bytearray(RECEIVED)

    def ask(self, request: bytes, count: int, limit: float) -> list[Any]:
        """Send *request* and return the *count* answers; a refusal is one, too.

        The server may be silent for *limit* seconds, and after it has begun to answer, for as long as redis-py would
        let it. Raises redis-py's exceptions and OSError.
        """
        self._send(request, limit)
        self._receive(limit)
        answers: list[Any] = []
        gets = self._parser.gets
        while len(answers) < count:
            reply = gets()
            if reply is INCOMPLETE:
                # The server has begun to answer, so it works on the call: it may be silent for longer than before.
                self._receive(self._silence)
            else:
                answers.append(answer_of(reply) if isinstance(reply, Exception) else reply)
        return answers

    def send(self, request: bytes) -> None:
        """Send *request*, whose answers are gathered later."""
        self._send(request, self._silence)

    def gather(self, answers: list[Any], count: int, seconds: float) -> bool:
        """Add to *answers* what comes. Return whether there are *count*: no, if nothing comes for *seconds*."""
        while True:
            while len(answers) < count and (reply := self._parser.gets()) is not INCOMPLETE:
                answers.append(answer_of(reply) if isinstance(reply, Exception) else reply)
            if len(answers) == count:
                return True
            # TLS may have decrypted more than was asked for: then nothing is seen, though there is something.
            if not (self._decrypted and self._decrypted()) and not self._readable.wait(seconds):
                return False
            self._receive(self._silence)

    def is_coming(self, seconds: float) -> bool:
        """Return whether something has come, or comes within *seconds*."""
        return bool(self._decrypted and self._decrypted()) or self._readable.wait(seconds)

    def is_clean(self) -> bool:
        """Return whether nothing was received after the answers that were asked for."""
        return not self._parser.has_data()

    def is_sound(self) -> bool:
        """Return whether nothing has come since the last answer, such as the end of the connection."""
        return not self._readable.wait(0)

    def _send(self, request: bytes, limit: float) -> None:
        try:
            sent = self._socket.send(request, socket.MSG_DONTWAIT) if self._waits else self._socket.send(request)
        except _NOT_YET:
            sent = 0
        if sent < len(request):
            self._send_rest(memoryview(request)[sent:], limit)

    def _send_rest(self, rest: memoryview, limit: float) -> None:
        writable = ServerReadiness(self._socket, writing=True)
        while rest:
            self._await(writable, limit)
            try:
                rest = rest[self._socket.send(rest, *([socket.MSG_DONTWAIT] if self._waits else [])) :]
            except ssl.SSLWantReadError:
                self._await(self._readable, limit)
            except _NOT_YET:
                continue

    def _receive(self, limit: float) -> None:
        """Give the parser what arrives next."""
        if self._waits:
            if not limit <= self._patience <= limit * (1 + LENIENCE):
                self._be_patient(limit * (1 + LENIENCE / 2))
            try:
                size = self._socket.recv_into(self._buffer)
            except BlockingIOError:
                raise redis.TimeoutError(f"no answer for {limit:.3g} s") from None
        else:
            size = self._receive_polled(limit)
        if not size:
            raise redis.ConnectionError("the server closed the connection")
        self._parser.feed(self._buffer, 0, size)

    def _be_patient(self, limit: float) -> None:
        """Let the kernel wait for *limit* seconds, or for a millisecond: 0 would be for ever."""
        seconds, part = divmod(max(limit, 0.001), 1)
        wait = struct.pack("@ll", int(seconds), int(part * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, wait)
        self._patience = limit

    def _receive_polled(self, limit: float) -> int:
        while True:
            if self._decrypted is None or not self._decrypted():
                self._await(self._readable, limit)
            try:
                return int(self._socket.recv_into(self._buffer))
            except _NOT_YET:  # a part of what TLS needs to decrypt the next piece
                continue

    def _await(self, ready: ServerReadiness, limit: float) -> None:
        if not ready.wait(limit):
            raise redis.TimeoutError(f"no answer for {limit:.3g} s")


class AskedLink:
    """A request that was sent on a `link` of `links` at local time `sent_at`, whose `count` answers nobody has yet.

    It is over when they were gathered, or given up.
    """

    __slots__ = ("count", "is_over", "link", "links", "sent_at")

    def __init__(self, links: Links, link: Link, count: int, sent_at: float) -> None:
        self.links, self.link, self.count, self.sent_at = links, link, count, sent_at
        self.is_over = False

    def answers(self, limit: float) -> list[Any]:
        """Return the answers: see `Links.end`."""
        return self.links.end(self, limit)

    def give_up(self) -> None:
        """Want no answers any more. The link is of no use to anybody else, since some may come yet."""
        if not self.is_over:
            self.is_over = True
            self.links.drop(self.link)


class LinkTicket:
    """A caller that waits for a place, and the idle `link` that it is handed; without one it makes its own."""

    __slots__ = ("link", "lock")

    def __init__(self) -> None:
        self.link: Link | None = None
        # A lock that is held: to wait for its release is the cheapest way in which a thread can be woken.
        self.lock = Lock()
        self.lock.acquire()


class Links:
    """The links to one node, *most* at once: *pools* makes them at *place*, and the one used last is used next.

    Callers get one in the order in which they came. A server may be silent for *silence* seconds, and the library's
    part of `connect` turns what redis-py raises into a failure. Each link is idle, in use, or one of `_spare` that may
    yet be made.
    """

    def __init__(
        self,
        pools: Pools,
        place: tuple[Address | None, bool],
        connect: Callable[[Any], Any],
        now: Callable[[], float],
        *,
        most: int,
        silence: float,
    ) -> None:
        self._pools, self._pool, self._connect, self._now = pools, pools[place], connect, now
        self._most, self._silence = most, silence
        self._idle: deque[Link] = deque()  # its methods are atomic, so the common case needs no lock
        self._has_sentinels = hasattr(self._pool, "master_address")
        self._lock = Lock()  # guards what follows
        self._spare = most
        self._waiting: deque[LinkTicket] = deque()

    def ask(
        self,
        request: bytes,
        count: int,
        until: float,
        *,
        on_send: Callable[[], None] | None = None,
        after_refusal: Callable[[], FollowUp] | None = None,
        server: Any = None,
    ) -> list[Any]:
        """Send *request* on a link, only to *server* if that is given. Return the *count* answers.

        If one of them is a refusal, the result of *after_refusal* is sent, too, on the same link: it belongs to the
        same call, which does not wait for a link again. Then the last answers are returned. The caller gives up at
        local time *until*. Raises `Unanswered`, `Refused`, or what *on_send* raises.
        """
        link, clean = self.take(until), True
        try:
            if server is not None and link.peer != server:
                raise Unanswered("another server is at this address now", sent=False)
            follow_up: FollowUp | None = None
            while True:
                # The last moment at which the call may be withdrawn: the link is clean, and nothing of it was sent.
                if on_send is not None:
                    on_send()
                # From here on an answer may still come, so a link whose call fails is of no use to anybody else.
                clean = False
                answers = link.ask(request, count, min(self._silence, max(MIN_TRY, until - self._now())))
                clean = link.is_clean()
                refused = Refused in map(type, answers)
                if refused and follow_up is None and after_refusal is not None:
                    follow_up = after_refusal()
                commands = follow_up(answers) if follow_up is not None else ()
                if not commands:
                    break
                request, count = packed(commands), len(commands)
        except CONNECTION_ERRORS as error:
            raise unanswered(error) from error
        finally:
            if clean and not self._pools.closed:
                self.give(link)
            else:
                self.drop(link)
        # Idle links lead to the same node, which is no master any more.
        if refused and demoted(answers):
            self.drop_idle()
        return answers

    def begin(self, request: bytes, count: int, *, on_send: Callable[[], None] | None = None) -> AskedLink | None:
        """Send *request* on an idle link, and wait for none of its *count* answers; None if there is no idle link.

        So a caller that holds links to other nodes waits for nobody who may hold this one. Raises as `ask`.
        """
        link, clean = self._take_idle(), True
        if link is None:
            return None
        try:
            if on_send is not None:
                on_send()
            clean = False
            link.send(request)
        except CONNECTION_ERRORS as error:
            self.drop(link)
            raise unanswered(error) from error
        except BaseException:  # such as `Withdrawn`: then nothing was sent
            (self.give if clean else self.drop)(link)
            raise
        return AskedLink(self, link, count, self._now())

    def end(self, asked: AskedLink, limit: float) -> list[Any]:
        """Return the answers to what was sent. The server may be silent for *limit* seconds since then.

        Raises `Unanswered` or `Refused`.
        """
        answers: list[Any] = []
        clean = False
        seconds = max(MIN_TRY, limit - (self._now() - asked.sent_at))
        try:
            if not asked.link.gather(answers, asked.count, seconds):
                raise redis.TimeoutError(f"no answer for {limit:.3g} s")
            clean = asked.link.is_clean()
        except CONNECTION_ERRORS as error:
            raise unanswered(error) from error
        finally:
            asked.is_over = True
            if clean and not self._pools.closed:
                self.give(asked.link)
            else:
                self.drop(asked.link)
        if Refused in map(type, answers) and demoted(answers):
            self.drop_idle()
        return answers

    def take(self, until: float = math.inf) -> Link:
        """Return a link for the caller alone, which gives it back with `give`, or with `drop` if it failed.

        Raises `AllBusy` if all are in use until local time *until*, and `Unanswered` or `Refused` if none can be made.
        """
        # No link of a closed client stays open: `close` closes those that there are, and a call that still uses one
        # drops it.
        if self._pools.closed:
            raise ClosedError(CLOSED_MEANWHILE)
        link = None
        if not self._waiting:  # those that wait go first
            try:
                link = self._idle.pop()
            except IndexError:
                pass
            else:
                # To look at a socket is a system call, and one that was used just now is hardly ever dead.
                if self._now() - link.used_at < TRUSTED_SECONDS and not self._has_sentinels:
                    return link  # the common case
        return self._fit_link(link or self._wait(until))

    def _take_idle(self) -> Link | None:
        """Return an idle link that can be used; None if there is none, or somebody waits for one."""
        while not (self._waiting or self._pools.closed):
            try:
                link = self._idle.pop()
            except IndexError:
                return None
            fit = False
            try:
                fit = self._is_fit(link)
            finally:
                if not fit:
                    self.drop(link)
            if fit:
                return link
        return None

    def _fit_link(self, link: Link | None) -> Link:
        """Return *link* if it can be used, else a new one in its place, which is the caller's."""
        try:
            # It may have been closed while the caller waited: then nothing is sent any more.
            if not self._pools.closed and link is not None and self._is_fit(link):
                return link
            if link is not None:
                self._close(link)
            if self._pools.closed:
                raise ClosedError(CLOSED_MEANWHILE)
            try:
                return Link(self._connect(self._pool))
            except CLOSED as error:
                # Another thread has closed the client since the connection was made, and so the connection.
                if self._pools.closed:
                    raise ClosedError(CLOSED_MEANWHILE) from error
                raise
        except BaseException:
            self._free_place()
            raise

    def give(self, link: Link) -> None:
        """Keep *link* for the next caller."""
        link.used_at = self._now()
        self._idle.append(link)
        # In this order: a caller that begins to wait between these lines finds the link itself.
        if self._waiting:
            self._hand_on()

    def drop(self, link: Link) -> None:
        """Close *link*. Another one may be made for it."""
        self._close(link)
        self._free_place()

    def drop_idle(self) -> None:
        """Close all links that nobody uses."""
        while self._idle:
            try:
                self.drop(self._idle.pop())
            except IndexError:
                return

    def _wait(self, until: float) -> Link | None:
        """Wait for a place. Return the idle link in it; None if the caller may make one."""
        seconds = max(MIN_TRY, until - self._now())
        ticket = LinkTicket()
        with self._lock:
            self._waiting.append(ticket)
        handed = False
        try:
            self._hand_on()
            handed = ticket.lock.acquire(timeout=min(seconds, MAX_WAIT))
        finally:
            if not handed:
                self._leave(ticket)
        if not handed:
            raise AllBusy(self._most, seconds)
        return ticket.link

    def _hand_on(self) -> None:
        """Hand what is free to those who have waited longest."""
        with self._lock:
            while self._waiting:
                try:
                    link = self._idle.pop()
                except IndexError:
                    if not self._spare:
                        return
                    self._spare -= 1
                    link = None
                ticket = self._waiting.popleft()
                ticket.link = link
                ticket.lock.release()

    def _leave(self, ticket: LinkTicket) -> None:
        """Stop waiting. If *ticket* was handed something at the same moment, hand that on."""
        with self._lock:
            try:
                self._waiting.remove(ticket)
                return
            except ValueError:
                pass
        if ticket.link is None:
            self._free_place()
        else:
            self.give(ticket.link)

    def _free_place(self) -> None:
        with self._lock:
            self._spare += 1
        if self._waiting:
            self._hand_on()

    def _close(self, link: Link) -> None:
        link.connection.disconnect()
        # The pool counts its connections, and would refuse new ones for one that is not given back.
        self._pool.release(link.connection)

    def _is_fit(self, link: Link) -> bool:
        # Sentinels may have named another master since. The old one may still accept writes, which would be lost.
        if self._has_sentinels and not leads_to_master(self._pool, link.connection):
            return False
        idle, most_idle = self._now() - link.used_at, self._pools.most_idle
        if most_idle and idle >= most_idle:
            return False
        return idle < TRUSTED_SECONDS or link.is_sound()


def _peer_of(connection: Any) -> Any:
    """Return the address of the other end of *connection*'s socket; None if it has no socket."""
    try:
        return connection._sock.getpeername()
    except CLOSED:
        return None
