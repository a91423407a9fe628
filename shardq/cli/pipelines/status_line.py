"""Output on stderr while a pipeline runs: remarks and, on a terminal, a status line below them."""

from __future__ import annotations

import os
import threading
from typing import TextIO

from shardq.cli.output import remark, say
from shardq.cli.text import printable

CLEARED = "\r\x1b[K"


class StatusLine:
    """Prints remarks with `remark`, and rewrites the status line with `update`. Threads may share it.

    If stderr is no terminal, each update is a line that stays. `every` is the number of seconds between two updates.
    While `forwards` is false, lines of other programs are left out.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._lock, self._shown = stream, threading.Lock(), False
        self._terminal = stream.isatty()
        self.forwards = True
        self.every = 0.3 if self._terminal else 5.0

    def remark(self, text: str) -> None:
        """Print a line that stays."""
        with self._lock:
            self._clear()
            remark(text, file=self._stream)

    def forward(self, line: str) -> None:
        """Print a line of another program, which stays."""
        if not self.forwards:
            return
        with self._lock:
            self._clear()
            say(printable(line, keep="\t"), file=self._stream, flush=True)

    def update(self, text: str) -> None:
        """Replace the status line; "" removes it."""
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
