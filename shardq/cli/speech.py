"""A worker's lines on stderr while it works: one with its time for each thing, as text or as JSON."""

from __future__ import annotations

import contextlib
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

from shardq.cli.output import remark, say
from shardq.cli.text import json_line

LogFormat: TypeAlias = Literal["text", "json"]
_FACTS: Final = ("queue", "tenant", "task", "message_id", "delivery")


class Speech(logging.Handler):
    """Prints what the worker says, and what the library logs, from *level* on."""

    def __init__(self, log_format: LogFormat, level: int) -> None:
        super().__init__(level)
        self.format_name = log_format

    def listen(self) -> None:
        """Print what the library logs, and nothing else does: not the remarks of other commands."""
        log = logging.getLogger("shardq")
        for each in log.handlers[:]:
            log.removeHandler(each)
        log.addHandler(self)
        log.setLevel(self.level)

    def say(self, text: str, level: int = logging.INFO) -> None:
        """Say something of the worker itself."""
        self.handle(logging.LogRecord("shardq", level, "", 0, text, None, None))

    def handle(self, record: logging.LogRecord) -> bool:
        """Print *record*, unless its level is lower."""
        return record.levelno >= self.level and bool(super().handle(record))

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line, and in the form of text the traceback behind it.

        A line that cannot be printed is lost: its terminal was closed, say. The speaker continues.
        """
        with contextlib.suppress(OSError):
            self._print(record)

    def _print(self, record: logging.LogRecord) -> None:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
        trace = traceback_of(record)
        if self.format_name == "json":
            say(json_line(_fields(record, at, trace)), file=sys.stderr, flush=True)
            return
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        remark(f"{at} {level}{record.getMessage()}")
        if trace:
            say(trace, file=sys.stderr, flush=True)


def traceback_of(record: logging.LogRecord) -> str:
    """Return the traceback of a *record*, which may be a text already; '' if it has none."""
    if record.exc_text or not record.exc_info:
        return record.exc_text or ""
    return "".join(traceback.format_exception(record.exc_info[1])).rstrip()


def _fields(record: logging.LogRecord, at: str, trace: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"time": at, "level": record.levelname.lower(), "text": record.getMessage()}
    for name in _FACTS:
        if (value := getattr(record, name, "")) != "":
            fields[name] = value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
    return fields | ({"traceback": trace} if trace else {})
