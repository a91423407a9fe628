"""A call of one of Django's tasks, as a message has it: the task's path, and its arguments as JSON."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final

import msgspec
from django.utils.json import normalize_json

from shardq.codec import Codecs
from shardq.errors import CodecError
from shardq.model.call import Call as Payload

ARGUMENT: Final = "call"
"""The one argument of the message: the text of the JSON."""


class SentTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """The arguments of a call, and when it may run at the earliest."""

    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    run_after: datetime | None = None

    @classmethod
    def of(cls, args: Any, kwargs: Any, run_after: datetime | None) -> SentTask:
        """Return a call as its worker will see it. TypeError or ValueError for what is not JSON, as Django says."""
        values = json.loads(json.dumps([as_json(list(args)), as_json(dict(kwargs))]))
        return cls(values[0], values[1], run_after)

    def call(self, path: str) -> Payload[Any]:
        """Return the payload of a message that calls the task *path*."""
        return Payload(path, {ARGUMENT: json.dumps(msgspec.to_builtins(self))})


def as_json(value: Any) -> Any:
    """Return *value* as Django has it of JSON. TypeError or ValueError for what is not JSON, also for a key.

    Django leaves such keys as they are, and JSON would make text of them.
    """
    found = normalize_json(value)
    _check_keys(found)
    return found


def _check_keys(value: Any) -> None:
    if isinstance(value, dict):
        if wrong := [each for each in value if not isinstance(each, str)]:
            raise TypeError(f"Unsupported type of a key: {type(wrong[0])}")
        value = [*value.values()]
    for each in value if isinstance(value, list) else ():
        _check_keys(each)


def sent_in(text: Any) -> SentTask | None:
    """Read the JSON of a call; None for anything else: others may write messages, too."""
    try:
        return msgspec.convert(json.loads(text), SentTask)
    except (TypeError, ValueError, RecursionError):
        return None


def call_in(codecs: Codecs, tag: str, body: bytes) -> tuple[str, SentTask] | None:
    """Return the path of the task that a payload calls, and the call; None if it is none."""
    try:
        name, arguments = msgspec.convert(codecs.decode(tag, body), tuple[str, dict[str, Any]])
    except (CodecError, msgspec.ValidationError):
        return None
    sent = sent_in(arguments.get(ARGUMENT))
    return None if sent is None else (name, sent)
