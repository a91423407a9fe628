"""Parsers for replies: hiredis parses, in C."""

from __future__ import annotations

from typing import Any, Final

import hiredis
from redis.exceptions import InvalidResponse

from shardq.drivers.failures import parse_error

INCOMPLETE: Final = object()
"""A parser returns this if the next reply has not arrived whole."""


def new_parser() -> Any:
    """Return a parser: `feed` gives it what arrived, and `gets` returns the next reply, or `INCOMPLETE`.

    An error reply becomes one of redis-py's exceptions. `InvalidResponse` is raised for what is no reply at all.
    """
    return hiredis.Reader(protocolError=InvalidResponse, replyError=parse_error, notEnoughData=INCOMPLETE)
