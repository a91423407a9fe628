"""Stderr while something runs: remarks, and below them one line that is written anew, on a terminal."""

from __future__ import annotations

import os
import threading
from typing import TextIO

from shardq.cli.text import printable

CLEARED = "\r\x1b[K"


class Line:
    """Remarks go through `remark`, what changes through `update`; where there is no terminal both are lines.

    `every` says after how many seconds an update is worth it. Threads may share it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._lock, self._shown = stream, threading.Lock(), False
        self._terminal = stream.isatty()
        self.every = 0.3 if self._terminal else 5.0

    def remark(self, text: str) -> None:
        """One line that stays."""
        with self._lock:
            self._clear()
            print(f"shardq: {printable(text)}", file=self._stream, flush=True)

    def passed_on(self, line: str) -> None:
        """A line of somebody else that stays."""
        with self._lock:
            self._clear()
            print(printable(line, keep="\t"), file=self._stream, flush=True)

    def update(self, text: str) -> None:
        """The line that changes; "" removes it."""
        if not self._terminal:
            if text:
                self.remark(text)
            return
        with self._lock:
            self._clear()
            if text:
                self._stream.write(f"shardq: {printable(text)}"[: self._width()])
                self._shown = True
            self._stream.flush()

    def _clear(self) -> None:
        if self._shown:
            self._stream.write(CLEARED)
            self._shown = False

    def _width(self) -> int:
        try:
            return (os.get_terminal_size(self._stream.fileno()).columns or 80) - 1
        except OSError:
            return 79
