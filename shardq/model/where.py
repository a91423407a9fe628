"""Which messages a call is about."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

import msgspec

from shardq.arguments import one_of, seconds, text
from shardq.errors import ConfigError
from shardq.sharding import key_bytes

WhereState: TypeAlias = Literal["waiting", "delayed", "retrying", "in_flight", "dead"]
"""States that a filter can name. "waiting" includes what is held back; "retrying" is delayed after a failed try."""

MAX_TEXT: Final = 500
"""The longest `task`, `error` and `reason`, in letters."""

MAX_AGE: Final = 100 * 365 * 86_400.0
"""The greatest age, in seconds."""


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of messages: all that is said must hold. ConfigError if a field is wrong, or two contradict each other.

    `tenant` is a shard key; where the queue has parents, a parent stands for all its children. `task` is the name of
    the task that the message calls; `error` the class of the last error, or a part of its text; `reason` how the last
    try failed (one of `FailureReason`; a message that is not dead can have "retry" and "lease ended"), or a
    part of the reason of a dead letter. `older_than` and `newer_than` are seconds since the message was written; of a
    dead letter, since it died. `state` is where they are now, such as "waiting" or "in_flight".

    >>> Where(task="mail.send_receipt", error="TimeoutError").is_empty
    False
    """

    tenant: str | bytes | None = None
    task: str | None = None
    error: str | None = None
    reason: str | None = None
    older_than: float | None = None
    newer_than: float | None = None
    state: WhereState | None = None

    def __post_init__(self) -> None:
        """ConfigError for a bad one."""
        if self.tenant is not None:
            key_bytes(self.tenant)
        for name in ("task", "error", "reason"):
            if (value := getattr(self, name)) is not None:
                _check_text(name, value)
        for name in ("older_than", "newer_than"):
            if (value := getattr(self, name)) is not None:
                seconds(name, value, 0, MAX_AGE)
        if self.older_than is not None and self.newer_than is not None and self.older_than >= self.newer_than:
            raise ConfigError(
                f"no message is older than {self.older_than:g} s and newer than {self.newer_than:g} s: older_than must "
                "be less than newer_than"
            )
        if self.state is not None:
            one_of("state", self.state, get_args(WhereState))

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing, so that it is about all messages."""
        return self == Where()


def _check_text(name: str, value: str) -> None:
    text(name, value)
    if not 1 <= len(value) <= MAX_TEXT:
        raise ConfigError(f"{name} must have 1 to {MAX_TEXT} letters, this one has {len(value):,}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{name} must be valid Unicode: this one holds a lone surrogate") from None
