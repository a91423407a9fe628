"""The record of a call: a note while it is tried, and its result. Both say what Django wants to know of it."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from shardq.codec import Codecs
from shardq.django.sent import SentTask
from shardq.errors import CodecError
from shardq.protocol.results import NOTE, TOO_LARGE, VALUE, KeptResult
from shardq.worker.guard import path_of, traced

READY: Final = "READY"
RUNNING: Final = "RUNNING"
FAILED: Final = "FAILED"
SUCCESSFUL: Final = "SUCCESSFUL"
"""The names of Django's statuses."""

MAX_TRACE: Final = 8192
"""Characters of a traceback: its end says most."""
MIN_TRACE: Final = 1024
"""Characters that are left of the last one if the whole has no room."""
MAX_ERRORS: Final = 16
MAX_WORKERS: Final = 100


class ResultRecord(msgspec.Struct, frozen=True):
    """The known facts of a call.

    Times are ms since the epoch, 0 if it has not come to that; *sent* may be too large.
    """

    path: str = ""
    status: str = READY
    sent: SentTask | None = None
    started: int = 0
    attempted: int = 0
    finished: int = 0
    errors: tuple[tuple[str, str], ...] = ()
    workers: tuple[str, ...] = ()
    value: Any = None

    def begun(self, worker: str, now: int) -> ResultRecord:
        """Return it as of the start of another attempt."""
        return replace(
            self, status=RUNNING, started=self.started or now, attempted=now, finished=0,
            workers=(*self.workers, worker)[-MAX_WORKERS:],
        )  # fmt: skip

    def failed(self, error: BaseException, now: int, *, is_last: bool) -> ResultRecord:
        """Return it as of an attempt that failed."""
        found = (path_of(error), f"{traced(error)}\n"[-MAX_TRACE:])
        status, finished = (FAILED, now) if is_last else (READY, 0)
        return replace(self, status=status, finished=finished, errors=(*self.errors, found)[-MAX_ERRORS:])

    def succeeded(self, value: Any, now: int) -> ResultRecord:
        """Return it as of an attempt that returned *value*, which is as JSON has it."""
        return replace(self, status=SUCCESSFUL, finished=now, value=value)


def kept_of(record: ResultRecord, codecs: Codecs, most: int) -> KeptResult:
    """Return a record as Redis keeps it, in *most* bytes: without arguments and the earlier errors if need be."""
    last = tuple((path, text[-MIN_TRACE:]) for path, text in record.errors[-1:])
    tag, body = "", b""
    for shorter in (record, replace(record, sent=None), replace(record, sent=None, errors=last)):
        tag, body = codecs.encode(json.dumps(msgspec.to_builtins(shorter)))
        if len(body) <= most:
            return KeptResult(VALUE if record.status == SUCCESSFUL else NOTE, tag, body)
    return KeptResult(TOO_LARGE)


def record_in(codecs: Codecs, kept: KeptResult | None) -> ResultRecord | None:
    """Read what is kept of a call. None if that is nothing, or nothing of Django's."""
    if kept is None or kept.kind not in (VALUE, NOTE):
        return None
    try:
        return msgspec.convert(json.loads(codecs.decode(kept.tag, kept.body)), ResultRecord)
    except (CodecError, TypeError, ValueError, RecursionError):
        return None
