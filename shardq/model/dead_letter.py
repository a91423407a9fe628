"""Dead letters: messages that are not delivered again unless they are redriven."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from shardq.arguments import iterable
from shardq.codec import Codecs
from shardq.errors import ConfigError
from shardq.model.call import called
from shardq.model.failure import FailureReason

_BUILT_IN = Codecs()


class Decoded:
    """Holds codecs outside the fields of a dataclass, so that comparing, printing and pickling ignore them."""

    __slots__ = ("_codecs",)

    _codecs: Codecs

    def read_with(self, codecs: Codecs) -> Self:
        """Let these codecs decode `payload`, and return the letter. Clients call it.

        For the parts of shardq that make letters.
        """
        object.__setattr__(self, "_codecs", codecs)
        return self

    def _decoded(self, tag: str, body: bytes, fields: Mapping[str, bytes] | None) -> Any:
        return dict(fields) if fields is not None else getattr(self, "_codecs", _BUILT_IN).decode(tag, body)


@dataclass(frozen=True, slots=True)
class DeadLetter(Decoded):
    """A message that will not be delivered again unless it is redriven. Times are seconds since the epoch.

    `fields` are the fields of a legacy entry, None for other messages. `error_type` is the class of its last error, and
    `failure_reason` how its last try failed; both are '' where that is not known, as of letters of earlier versions.

    `Queue.dead` returns them. `entry_id` is the letter's place among the dead, `message_id` what `write` returned,
    `shard_key` and `headers` are those of the write, which was at `written_at`. It died at `died_at`, after `count`
    deliveries, for the `reason`; `last_error` is what its last try failed with. `body` is the payload as it is stored,
    and `tag` the letter of the codec that wrote it.
    """

    entry_id: str
    message_id: str
    shard_key: str | bytes
    reason: str
    count: int
    last_error: str
    written_at: float
    died_at: float
    body: bytes = field(repr=False)
    tag: str = "b"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    fields: Mapping[str, bytes] | None = field(default=None, repr=False)
    error_type: str = ""
    failure_reason: FailureReason | Literal[""] = ""

    @property
    def task(self) -> str:
        """The name of the task that the payload calls; '' if it is no call."""
        return called(self.tag, self.body)

    @property
    def payload(self) -> Any:
        """The payload, decoded by the client's codecs; for a legacy entry its fields. CodecError if decoding fails.

        A letter that was copied or pickled uses the built-in codecs only.
        """
        return self._decoded(self.tag, self.body, self.fields)


def letters_of(items: Iterable[DeadLetter]) -> list[DeadLetter]:
    """Return dead letters as a list. ConfigError if *items* are anything else."""
    letters = list(iterable("letters", items, "DeadLetter"))
    if wrong := [each for each in letters if not isinstance(each, DeadLetter)]:
        raise ConfigError(f"letters must be what dead() returned, not {type(wrong[0]).__name__}")
    return letters
