"""Parsers for replies, and which clients read and write their sockets themselves.

hiredis parses, in C. Where it is missing there is no lean path: redis-py then reads the replies with a parser of its
own (see `is_lean`).
"""

from __future__ import annotations

import os
from typing import Any, Final

from redis.exceptions import InvalidResponse

from shardq.drivers.failures import parse_error
from shardq.drivers.target import Target

try:
    import hiredis
except ImportError:  # a redis-py without its extra
    hiredis = None  # type: ignore[assignment, unused-ignore]

MORE: Final = object()
"""What a parser returns if the next reply has not arrived whole."""


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
