"""Messages before they are sent: they are checked, encoded, and split into calls of a bounded size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from shardq.arguments import one_of, seconds
from shardq.codec import Codecs, encode_headers
from shardq.errors import CodecError, ConfigError
from shardq.model import Message
from shardq.ops.queue.state import QueueState
from shardq.sharding import key_bytes

CHUNK_MESSAGES = 250
CHUNK_CHOICES = 8000
CHUNK_BYTES = 4 * 1024 * 1024
SLOW_BYTES = CHUNK_BYTES // 125
"""A message with a key or a delay weighs as much at least, so a call has half as many: each takes twice the time."""
MAX_DELAY = 10 * 365 * 86_400
MAX_DEDUP_KEY = 512
EXISTING: Final = "existing"
ON_CONFLICT: Final = (EXISTING, "replace", "raise")


class Outgoing(msgspec.Struct, frozen=True):
    """A checked and encoded message. `delay` and `deadline` are ms from the write.

    `delays` says that a delay was given, if only one of 0. With a `unique_key`, `on_conflict` says what is done if
    another message has it; `takes_from` is the id of one that may have it anyway. A dedup key with `most_ids` is an id
    of a gateway's client, "token:id": the token keeps this many in the queue, and its own oldest go first. `asked` says
    who asked for the write (see `Who`), if the message goes alone. One with a key was `dealt` its partition by the map
    of this generation (lua/knows.lua); if it `must_be_known` there, it goes to a former home.
    """

    shard_key: str | bytes
    tag: str
    body: bytes
    headers: bytes = b""
    delay: int = 0
    deadline: int = 0
    dedup_key: str = ""
    unique_key: str = ""
    on_conflict: str = ""
    delays: bool = False
    takes_from: str = ""
    most_ids: int = 0
    asked: str = ""
    dealt: int = 0
    must_be_known: bool = False

    @property
    def has_key(self) -> bool:
        """Whether it has a dedup or a unique key."""
        return bool(self.dedup_key or self.unique_key)

    @property
    def options(self) -> str:
        """The options as the verb `write` takes them."""
        if not (self.delay or self.deadline or self.dedup_key or self.unique_key):
            return ""
        front = "=" if self.must_be_known else ""
        if self.unique_key:
            # "replace" and "raise" have the same letter: to the verb only "existing" is another case.
            mode = f"{self.on_conflict[0]}{len(self.unique_key.encode())}"
            times = f"{front}{self.delay or ''}|{self.deadline or ''}"
            return f"{times}/{mode}|{self.takes_from}|{self.unique_key}{self.dedup_key}"
        scope = f"@{self.most_ids}|" if self.most_ids else "|"
        return f"{front}{self.delay or ''}|{self.deadline or ''}{scope}{self.dedup_key}"


def compose(
    state: QueueState,
    codecs: Codecs,
    payload: Any,
    shard_key: str | bytes,
    delay: float | None = None,
    deadline: float | None = None,
    dedup_key: str | None = None,
    headers: Mapping[str, str] | None = None,
    unique_key: str | None = None,
    on_conflict: str = "existing",
    context: Mapping[str, str] | None = None,
) -> Outgoing:
    """Check and encode one message. ConfigError or CodecError if it is bad; then nothing has been sent.

    *context* is the trace context, which becomes headers. Headers that the user set win over it.
    """
    check_shard_key(state, shard_key)
    tag, body = codecs.encode(payload)
    if len(body) > state.max_payload:
        raise ConfigError(
            f"the payload has {len(body):,} bytes, more than max_payload = {state.max_payload:,}: "
            "store it elsewhere and write a reference"
        )
    if unique_key is not None or on_conflict is not EXISTING:
        check_conflict(unique_key, on_conflict)
    delays = delay is not None
    due = 0 if delay is None else _ms("delay", delay, 0)
    # 0 stands for none, so a deadline that is rounded to it becomes 1.
    ends = 0 if deadline is None else max(1, _ms("deadline", deadline, 0.001))
    if ends and ends <= due:
        raise ConfigError("deadline must be later than delay: the message would never be delivered")
    # Anything else is no headers, which `encode_headers` says.
    if context and (headers is None or isinstance(headers, Mapping)):
        headers = {**context, **(headers or {})}
    return Outgoing(
        shard_key,
        tag,
        body,
        b"" if headers is None else encode_headers(headers),
        due,
        ends,
        "" if dedup_key is None else checked_key("dedup_key", dedup_key),
        "" if unique_key is None else checked_key("unique_key", unique_key),
        on_conflict if unique_key is not None else "",
        delays,
    )


def compose_message(
    state: QueueState, codecs: Codecs, message: Message, context: Mapping[str, str] | None = None
) -> Outgoing:
    """Do as `compose` with the fields of *message*."""
    return compose(
        state,
        codecs,
        message.payload,
        message.shard_key,
        message.delay,
        message.deadline,
        message.dedup_key,
        message.headers,
        message.unique_key,
        message.on_conflict,
        context,
    )


def check_shard_key(state: QueueState, shard_key: str | bytes) -> None:
    """ConfigError if *shard_key* is none. That of a single write before, in this view, is not checked again."""
    try:
        if shard_key in state.view.shards:
            return
    except Exception:  # noqa: BLE001, S110 (not hashable, or its own hash fails, so it is no key)
        pass
    key_bytes(shard_key)


def check_conflict(unique_key: str | None, on_conflict: str) -> None:
    """ConfigError if *on_conflict* is unknown, or says something without a *unique_key*."""
    one_of("on_conflict", on_conflict, ON_CONFLICT)
    if unique_key is None and on_conflict != EXISTING:
        raise ConfigError(f'on_conflict="{on_conflict}" is for messages with a unique_key')


def compose_all(
    state: QueueState, codecs: Codecs, messages: Sequence[Message], context: Mapping[str, str] | None = None
) -> list[Outgoing]:
    """Check and encode a batch, as `compose` does. The error says which message is wrong, also as its `index`."""
    composed: list[Outgoing] = []
    try:
        for message in messages:
            composed.append(compose_message(state, codecs, message, context))  # noqa: PERF401 (counts how far it came)
    except (CodecError, ConfigError) as error:
        wrong = type(error)(f"message {len(composed)} of the batch: {error}")
        wrong.index = len(composed)
        raise wrong from error
    return composed


def _ms(name: str, value: float, low: float) -> int:
    return round(seconds(name, value, low, MAX_DELAY) * 1000)


def checked_key(name: str, key: str | None) -> str:
    """Return a dedup key or unique key, '' for None. ConfigError if it is empty, not text, or too long."""
    if key is None:
        return ""
    # `replace`, so that a lone surrogate passes here, and gets an error of its own below.
    if not isinstance(key, str) or not 1 <= len(key.encode(errors="replace")) <= MAX_DEDUP_KEY:
        raise ConfigError(f"{name} must be text of 1 to {MAX_DEDUP_KEY} bytes")
    if not key.isascii() and key.encode(errors="replace").decode() != key:
        raise ConfigError(f"{name} must be valid Unicode: this one holds a lone surrogate")
    return key


def chunks(messages: Sequence[Outgoing], choices: int = 1) -> list[list[Outgoing]]:
    """Split *messages* so that no script runs long and no call grows large.

    Each message may go to one of *choices* streams. More choices make a script slower: then a chunk is smaller.
    """
    most = max_messages(choices)
    parts: list[list[Outgoing]] = []
    size = 0
    for message in messages:
        more = weight(message)
        if not parts or len(parts[-1]) >= most or size + more > CHUNK_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(message)
        size += more
    return parts


def max_messages(choices: int) -> int:
    """Return how many messages one call may have if each may go to one of *choices* streams."""
    return max(1, min(CHUNK_MESSAGES, CHUNK_CHOICES // choices))


def weight(message: Outgoing) -> int:
    """Return what *message* takes of the bytes that a call may have."""
    size = len(message.body) + len(message.headers) + 64
    return max(size, SLOW_BYTES) if message.delay or message.dedup_key or message.unique_key else size
