"""The measures of a process, sent through a pipe to the one that started it.

It tells each second if anything has changed, also while a job runs, and once more at its end. So a process that is
killed takes at most its last second with it, and nothing that it has told.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import struct
import threading
from collections.abc import Iterator
from typing import Final

from shardq.platforms import after_fork
from shardq.telemetry.family import Family, begin_family, packed, unpacked
from shardq.telemetry.measures import begin_tally

PERIOD: Final = 1.0
"""Seconds between two times at which a process tells what it has measured."""
END_TIMEOUT: Final = 1.0
"""Seconds within which what an ended process has told is taken: it is there already."""
MAX_TOLD: Final = 16 * 1024 * 1024
"""Bytes that a process may tell at once."""
READ: Final = 64 * 1024
"""Bytes of a pipe that are read at once."""
_LENGTH: Final = struct.Struct(">I")


@contextlib.contextmanager
def told_to(pipe: int) -> Iterator[None]:
    """Tell the parent process through a *pipe* what this one and those that it starts measure."""
    os.set_inheritable(pipe, False)
    family = begin_family(begin_tally().samples)
    ends, is_open = threading.Event(), threading.Event()
    is_open.set()

    def forget() -> None:
        if is_open.is_set():
            os.close(pipe)

    after_fork(forget)  # what a handler forks may outlive this process, and its end is the end of the pipe

    def tell() -> None:
        last, goes_on = b"", True
        try:
            while goes_on:
                goes_on = not ends.wait(PERIOD)
                now = packed(family.samples())
                if now != last:
                    _write(pipe, _LENGTH.pack(len(now)) + now)
                    last = now
        except OSError:  # the parent has ended
            pass
        finally:
            is_open.clear()
            os.close(pipe)

    teller = threading.Thread(target=tell, name="shardq-metrics", daemon=True)
    teller.start()
    try:
        yield
    finally:
        ends.set()
        teller.join(PERIOD)  # a parent that was stopped keeps nobody from ending


def _write(pipe: int, told: bytes) -> None:
    rest = memoryview(told)  # no file of Python: a process forked meanwhile would write what is left in its buffer
    while rest:
        rest = rest[os.write(pipe, rest) :]


class Follower:
    """Lets *family* have what a process tells through *pipe*, until that ends or `end` is called; in a thread."""

    def __init__(self, pipe: int, family: Family) -> None:
        self._pipe, self._family = pipe, family
        self._ended, self._end = os.pipe()
        self._thread = threading.Thread(target=self._follow, name="shardq-metrics", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """The process has ended: take what is still in the pipe, and wait for no more. Call it once.

        The pipe itself may stay open, for others may have inherited it.
        """
        os.close(self._end)
        self._thread.join(END_TIMEOUT)

    def _follow(self) -> None:
        member, buffer = self._family.join(), bytearray()
        try:
            for told in self._told():
                buffer += told
                for raw in _taken(buffer):
                    member.tell(unpacked(raw))
        except OverflowError:  # what runs there is the user's own code
            pass
        finally:
            member.end()
            os.close(self._pipe)
            os.close(self._ended)

    def _told(self) -> Iterator[bytes]:
        """Yield the bytes that come through the pipe, after the end at most as many as may be sent at once."""
        left = MAX_TOLD
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe, selectors.EVENT_READ)
            selector.register(self._ended, selectors.EVENT_READ)
            while left > 0:
                ready = {key.fd for key, _ in selector.select()}
                if self._pipe not in ready:
                    return
                if not (told := os.read(self._pipe, READ)):
                    return
                if self._ended in ready:
                    left -= len(told)
                yield told


def _taken(buffer: bytearray) -> Iterator[bytes]:
    """Take from *buffer* the messages that are there whole. OverflowError if one is longer than it may be."""
    while len(buffer) >= _LENGTH.size:
        (length,) = _LENGTH.unpack_from(buffer)
        if length > MAX_TOLD:
            raise OverflowError
        if len(buffer) < (whole := _LENGTH.size + length):
            return
        raw = bytes(buffer[_LENGTH.size : whole])
        del buffer[:whole]
        yield raw
