"""The record of a task's error: its class, and where it was raised. Its text may hold a part of the payload."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, Final

from shardq.model.failed import MAX_TEXT, described, name_of
from shardq.worker.guard import traceback_of

_OWN: Final = str(Path(__file__).parents[1])
MAX_FRAMES: Final = 8


def told(error: BaseException, function: Callable[..., Any], *, with_text: bool) -> str:
    """Return the class of *error*, its text if wanted, and the frames from the task's *function* to its origin.

    It is one line: `ValueError (report app/tasks.py:31 > total app/totals.py:12)`.
    """
    head = described(error) if with_text else name_of(error)
    frames = _frames(traceback_of(error), getattr(function, "__code__", None))
    kept = frames[-MAX_FRAMES:]
    while kept and len(line := f"{head} ({' > '.join(kept)})") > MAX_TEXT:
        kept = kept[1:]
    return line if kept else head[:MAX_TEXT]


def _frames(trace: TracebackType | None, begin: CodeType | None) -> list[str]:
    """Return the frames of a traceback from *begin* on, without those of shardq if that is not among them."""
    found: list[str] = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if code is begin:
            found.clear()
        if code is begin or not code.co_filename.startswith(_OWN):
            place = Path(code.co_filename)
            found.append(f"{code.co_name} {place.parent.name}/{place.name}:{trace.tb_lineno}".replace(" /", " "))
        trace = trace.tb_next
    return found
