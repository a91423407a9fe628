"""Commands as bytes: exactly what redis-py would send, whatever the words are."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace
from redis.connection import PythonRespSerializer

from shardq.drivers.resp import INCOMPLETE, new_parser
from shardq.drivers.wire import commands_of
from shardq.ops.queue.steps import Call
from shardq.protocol import packing
from shardq.protocol.packing import pack
from shardq.protocol.script import FUNCTION, HASH, Form
from shardq.protocol.scripts import load

FUNCTIONS = [replace(load(name), function=f"shardq_x_{name}") for name in ("write", "len")]
SCRIPTS = [load("write"), load("len"), load("skip"), *FUNCTIONS]
FORMS: tuple[Form, ...] = (FUNCTION, HASH)
words = some.text() | some.binary() | some.integers(-(2**63), 2**64)


def as_bytes(word: Any) -> bytes:
    """How redis-py encodes a word."""
    return word if isinstance(word, bytes) else str(word).encode()


def by_redis_py(*command: Any) -> bytes:
    """What redis-py's own packer, in Python, makes of *command*. (It takes the first word apart at blanks.)"""
    raw = PythonRespSerializer(2**62, as_bytes).pack("PING", *command)
    return b"*%d\r\n" % len(command) + b"".join(raw).split(b"$4\r\nPING\r\n", 1)[1]


@given(some.lists(words, min_size=1))
def test_a_command_is_packed_as_redis_py_does(command: list[Any]) -> None:
    assert pack(tuple(command)) == by_redis_py(*command)


@given(some.sampled_from(SCRIPTS), some.lists(some.text(), min_size=1), some.lists(words))
def test_a_call_is_packed_as_its_command_is(script: Any, keys: list[str], args: list[Any]) -> None:
    call = Call(script, tuple(keys), tuple(args))
    for form in (*FORMS, *FORMS):  # the second time its beginnings are known
        (command,) = commands_of(call, form, timeout=5)
        assert call.request(form) == by_redis_py(*command)


INTERRUPTED = """
import signal
from shardq.protocol.packing import pack

def interrupt(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
for _ in range(50):
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-3)
        while True:
            pack(tuple(range(2**40, 2**40 + 1000)))
    except KeyboardInterrupt:
        pass
"""


def test_a_signal_handler_may_raise_while_a_command_is_packed() -> None:
    """It killed the process: hiredis took what Python had not given it for the text of a number."""
    assert subprocess.run([sys.executable, "-c", INTERRUPTED]).returncode == 0, "-11 is a SIGSEGV"


def test_only_so_many_keys_and_beginnings_are_kept() -> None:
    for number in range(packing.MAX_CACHED + 10):
        assert Call(load("len"), (f"key-{number}", f"other-{number}", f"stream-{number}")).request(FUNCTION)
    assert len(packing.BEGINNINGS) <= packing.MAX_CACHED
    assert len(packing.PACKED_KEYS) <= packing.MAX_CACHED


def test_a_call_of_another_queue_has_its_own_keys() -> None:
    one, other = (Call(SCRIPTS[0], ("same", *(f"{name}-{at}" for at in range(20)))) for name in ("one", "two"))
    sent, others = one.request(FUNCTION), other.request(FUNCTION)
    assert sent.replace(b"one-", b"two-") == others != sent


def as_reply(value: Any) -> bytes:
    """A reply as the server writes it."""
    if isinstance(value, bytes):
        return b"$%d\r\n%b\r\n" % (len(value), value)
    return b"$-1\r\n" if value is None else b":%d\r\n" % value


@given(some.lists(some.binary() | some.none() | some.integers(-(2**63), 2**63 - 1)), some.integers(1, 7))
def test_replies_are_read_in_whatever_pieces_they_come(values: list[Any], size: int) -> None:
    stream = b"".join(map(as_reply, values))
    parser, found = new_parser(), []
    for at in range(0, len(stream), size):
        parser.feed(stream[at : at + size])
        found += list(iter(parser.gets, INCOMPLETE))
    assert found == values
