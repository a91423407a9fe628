"""A message as it is written, and its id."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict
from urllib.parse import unquote_to_bytes

import msgspec

from shardq.arguments import iterable
from shardq.errors import ConfigError, ShardqError
from shardq.sharding import MAX_SHARD_KEY

OnConflict: TypeAlias = Literal["existing", "replace", "raise"]
"""The rule for a message that is written while another one has its unique key."""

# An id may end with a quoted shard key; each of its bytes takes at most three letters.
_LAST_PART = r"\d{1,4}|[dl]|o\.[\w.~%-]{1,3072}"
_LONGEST_PLACE = len("o.") + MAX_SHARD_KEY
_MESSAGE_ID = re.compile(rf"(\d{{1,16}}-\d{{1,20}})-({_LAST_PART})", re.ASCII)


class WriteOptions(TypedDict, total=False):
    """The keyword arguments of `write` besides the shard key."""

    delay: float | None
    deadline: float | None
    dedup_key: str | None
    headers: Mapping[str, str] | None
    unique_key: str | None
    on_conflict: OnConflict
    timeout: float | None


class MessageId(NamedTuple):
    """The parts of a message id: the entry id `<ms>-<n>`, and the place where the body was stored.

    `n` counts a queue's messages, so ids never repeat within a queue; `ms` is the server's time of the write.
    """

    entry: str
    place: str

    @classmethod
    def parse(cls, text: str, otherwise: type[ShardqError] = ConfigError) -> MessageId:
        """Parse an id that `write` returned. ConfigError for what is no text, *otherwise* for any other text.

        An id may come from anybody: one in the URL of a program's user is no mistake of the program.
        """
        match = _MESSAGE_ID.fullmatch(text) if isinstance(text, str) else None
        if match is None or len(unquote_to_bytes(match[2])) > _LONGEST_PLACE:
            kind = otherwise if isinstance(text, str) else ConfigError
            raise kind("message_id must be what write() returned, such as '1732150000000-42-7'")
        return cls(match[1], match[2])

    @property
    def written_ms(self) -> int:
        """When the message was written: ms since the epoch by the server's clock."""
        return int(self.entry.partition("-")[0])


class Message(msgspec.Struct, frozen=True):
    """One message for `write_many`. Its fields are the arguments of `write`. Times are seconds from the write.

    `payload`, `shard_key`, `headers`, `dedup_key`, `unique_key` and `on_conflict` are as `Queue.write` has them. The
    message is delivered from `delay` seconds on, and no more after `deadline` seconds.

    >>> Message({"to": "ada"}, "acme", delay=60, dedup_key="order-7").delay
    60
    """

    payload: Any
    shard_key: str | bytes
    delay: float | None = None
    deadline: float | None = None
    dedup_key: str | None = None
    headers: Mapping[str, str] | None = None
    unique_key: str | None = None
    on_conflict: OnConflict = "existing"

    def __repr__(self) -> str:
        """Show all fields but payload and headers."""
        return (
            f"Message(shard_key={self.shard_key!r}, delay={self.delay!r}, deadline={self.deadline!r}, "
            f"dedup_key={self.dedup_key!r}, unique_key={self.unique_key!r})"
        )


def messages_of(items: Iterable[Message | tuple[Any, str | bytes]]) -> list[Message]:
    """Return messages, or pairs (payload, shard key), as messages. ConfigError names the item that is neither."""
    messages = []
    for index, item in enumerate(iterable("messages", items, "Message or (payload, shard_key)")):
        if isinstance(item, Message):
            messages.append(item)
        elif isinstance(item, tuple) and len(item) == 2:
            messages.append(Message(item[0], item[1]))
        else:
            raise _no_message(index)
    return messages


def _no_message(index: int) -> ConfigError:
    wrong = ConfigError(f"message {index} of the batch must be a Message or a pair (payload, shard_key)")
    wrong.index = index
    return wrong
