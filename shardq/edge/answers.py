"""Bounds of a gateway's answers. An answer is checked before it is parsed, since a gateway may be hostile or broken.

The work that an answer makes is bounded by its bytes: a run of ids names any number of messages in twenty of them.
"""

from __future__ import annotations

from typing import Any, Final

from shardq.datasink.fields import BadFields, fields_in, numbers_of
from shardq.datasink.messages import Response
from shardq.errors import ShardqError
from shardq.extras import extra

with extra("edge"):
    from google.protobuf.message import DecodeError

MAX_ANSWER_BYTES: Final = 1024 * 1024
"""Bytes of an answer. A gateway names a thousand messages in one."""
SMALL_BYTES: Final = 64 * 1024
"""Bytes up to which they are parsed, whatever they are: that takes a millisecond."""
MAX_MESSAGES: Final = 10_000
"""Messages that one answer may name."""
MAX_DICTIONARIES: Final = 100
"""Dictionaries, or prefixes, that one answer may name."""
MAX_TIMES_NAMED: Final = 8
"""How often a call's answers may name each message, on average."""
_NAMING: Final = numbers_of(Response, "ack", "info", "refused")
_FIELDS: Final = 8


class BadAnswer(ShardqError):
    """An answer that no gateway gives. Its text shows nothing of the content."""


def response_of(raw: bytes) -> tuple[Any, int]:
    """Return what a gateway says, and how many messages it names. BadAnswer."""
    try:
        for number, begin, end in fields_in(raw, _FIELDS) if len(raw) > SMALL_BYTES else ():
            if number in _NAMING:
                fields_in(raw, MAX_MESSAGES + MAX_DICTIONARIES, begin, end)
        response = Response.FromString(raw)
    except BadFields as bad:
        raise BadAnswer(f"something that is larger than it may be: {bad}") from None
    except DecodeError:
        raise BadAnswer("something that is no protobuf") from None
    if (count := _named(response)) > MAX_MESSAGES:
        raise BadAnswer(f"something that names {count:,} messages, more than {MAX_MESSAGES:,}")
    return response, count


def _named(response: Any) -> int:
    """Return how many messages an answer names, or how many parts it has, if these are too many already."""
    info = response.info
    if any(
        len(each) > MAX_DICTIONARIES
        for each in (info.known_dictionaries, info.wanted_dictionaries, info.known_prefixes)
    ):
        raise BadAnswer(f"something that names more than {MAX_DICTIONARIES} dictionaries or prefixes")
    runs = response.ack.runs
    count = len(response.ack.message_ids) + len(response.refused.refusals) + len(info.dropped)
    return count + (len(runs) if len(runs) > MAX_MESSAGES else sum(run.count for run in runs))


class Naming:
    """How many messages a gateway may still name on one call: each that was sent, a few times."""

    def __init__(self) -> None:
        self._left = MAX_MESSAGES

    def sent(self, count: int) -> None:
        """Note that *count* messages went out, which answers may name from now on."""
        self._left += MAX_TIMES_NAMED * count

    def named(self, count: int) -> None:
        """Count the messages that an answer names. BadAnswer if these are more than answers may name."""
        self._left -= count
        if self._left < 0:
            raise BadAnswer("more acks than messages that were sent")
