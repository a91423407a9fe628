"""Redis's wire format: pack commands, and make parsers for replies.

hiredis does both, in C. Where it is missing, commands are packed here, and there is no lean path: redis-py then reads
the replies with a parser of its own (see `is_lean`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

from redis.exceptions import InvalidResponse

from shardq.drivers.failures import parse_error
from shardq.drivers.target import Target
from shardq.ops.steps import Argument, Call

try:
    import hiredis
except ImportError:  # a redis-py without its extra
    hiredis = None  # type: ignore[assignment, unused-ignore]

MORE: Final = object()
"""What a parser returns if the next reply has not arrived whole."""

CACHED_PREFIXES: Final = 1024
_PREFIXES: dict[tuple[str, tuple[str, ...]], bytes] = {}


def is_lean(target: Target) -> bool:
    """Return whether a client of *target* reads and writes its sockets itself, after redis-py has connected them.

    The environment variable SHARDQ_LEAN=off is for tests: everything must hold without the lean path, too. A check of
    each connection's health (an option of the URL) is redis-py's.
    """
    wanted = os.environ.get("SHARDQ_LEAN", "on") != "off"
    return wanted and hiredis is not None and not target.settings.get("health_check_interval")


def new_parser() -> Any:
    """Return a parser: `feed` gives it what arrived, and `gets` returns the next reply, or `MORE`.

    An error reply becomes one of redis-py's exceptions. `InvalidResponse` is raised for what is no reply at all.
    """
    return hiredis.Reader(protocolError=InvalidResponse, replyError=parse_error, notEnoughData=MORE)


def pack_plainly(words: tuple[Argument, ...]) -> bytes:
    """Return the bytes of one command. It is what hiredis's function does, which is three times as quick."""
    packed = [b"*%d\r\n" % len(words)]
    for word in words:
        raw = word if isinstance(word, bytes) else str(word).encode()
        packed.append(b"$%d\r\n%b\r\n" % (len(raw), raw))
    return b"".join(packed)


pack: Final[Callable[[tuple[Argument, ...]], bytes]] = pack_plainly if hiredis is None else hiredis.pack_command  # type: ignore[assignment, unused-ignore] # stubs lie


def pack_call(call: Call) -> bytes:
    """Return the bytes of the command that runs *call* by its script's hash.

    The command's name, the hash and the keys are mostly those of an earlier call, so they are packed once. They are
    most of a call's words.
    """
    which = (call.script.sha, call.keys)
    prefix = _PREFIXES.get(which) or _pack_prefix(call)
    args = pack(call.args)
    return b"*%d\r\n%b%b" % (3 + len(call.keys) + len(call.args), prefix, args[args.index(b"\n") + 1 :])


def _pack_prefix(call: Call) -> bytes:
    script, keys = call.script, call.keys
    if len(_PREFIXES) >= CACHED_PREFIXES:
        _PREFIXES.clear()
    packed = pack(("EVALSHA_RO" if script.readonly else "EVALSHA", script.sha, len(keys), *keys))
    prefix = _PREFIXES[script.sha, keys] = packed[packed.index(b"\n") + 1 :]
    return prefix
