"""Ids of messages: which partition has a message stands at the end of its id, but for the head's.

The engine knows nothing of it: the layer adds it to what leaves a partition, and takes it off before it asks one. No id
of the engine has an `@` (a shard key in an id is quoted), so an old id is one of the head.

>>> with_partition("1795897620221-7-o.acme.2", 3), split("1795897620221-7-o.acme.2@3"), split("1795897620221-7-12")
('1795897620221-7-o.acme.2@3', ('1795897620221-7-o.acme.2', 3), ('1795897620221-7-12', 0))
"""

from __future__ import annotations

import re
from typing import Final, TypeVar

from shardq.arguments import text
from shardq.errors import ConfigError, ShardqError
from shardq.model.partitions import MAX_PARTITIONS

S = TypeVar("S", bound=str)
E = TypeVar("E", bound=ShardqError)
MARK: Final = "@"
_NUMBER: Final = re.compile(r"[1-9]\d?", re.ASCII)


def with_partition(message_id: S, number: int) -> S:
    """Return the id that users see for a message of partition *number*, with its class: a `Written` says the same."""
    return type(message_id)(f"{message_id}{MARK}{number}") if number else message_id


def told(error: E, message_id: str, number: int) -> E:
    """Let an error of partition *number* name the message as users know it."""
    if number and error.args:
        error.args = (str(error.args[0]).replace(message_id, with_partition(message_id, number)), *error.args[1:])
    return error


def split(message_id: str) -> tuple[str, int]:
    """Return the id within its partition, and the partition's number. ConfigError if it names none that can be."""
    inner, mark, number = text("message_id", message_id).rpartition(MARK)
    if not mark:
        return message_id, 0
    if not inner or not _NUMBER.fullmatch(number) or int(number) >= MAX_PARTITIONS:
        raise ConfigError("this id names no partition: give it as write returned it")
    return inner, int(number)
