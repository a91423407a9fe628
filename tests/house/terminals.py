"""A terminal of somebody who follows a page: commands are typed into a shell, and what it shows is waited for."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.waiting import eventually

PATIENCE = 120.0  # seconds: how long a command may take, or what it shows may be waited for
ENDED_BY_SIGNAL = {130, 143}  # 128 and the number: what a shell says of a program that a signal ended


def pattern(lines: list[str]) -> str:
    """Return the regular expression of the *lines* that are shown: `...` stands for anything, alone for any lines."""
    return "".join(
        r"(?:.*\n)*?" if line.strip() == "..." else r"[^\n]*".join(map(re.escape, line.rstrip().split("..."))) + r" *\n"
        for line in lines
    )


class Terminal:
    """A shell in *folder*. What was typed last may go on there until `interrupt`."""

    def __init__(self, folder: Path, log: Path, environment: Mapping[str, str]) -> None:
        self._log, self._seen, self._number = log, 0, 0
        with log.open("wb") as told:
            self._shell = subprocess.Popen(
                ["bash", "-s"], cwd=folder, env=environment,
                stdin=subprocess.PIPE, stdout=told, stderr=told, start_new_session=True,
            )  # fmt: skip
        assert self._shell.stdin
        self._keys = self._shell.stdin
        self._send("trap : INT\n")  # Ctrl-C ends what it runs, and not the shell

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGINT)
        self._keys.close()  # the shell ends once its command has
        try:
            self._shell.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self._shell.pid, signal.SIGKILL)
            self._shell.wait()

    @property
    def text(self) -> str:
        """All that it has shown."""
        return self._log.read_text(errors="replace")

    def type(self, command: str) -> None:
        """Begin *command*, and note how it ends."""
        self._number += 1
        # Without a standard input of its own it would read the next commands.
        self._send(f"{{\n{command}\n}} </dev/null\nprintf '\\n{self._mark} %s\\n' $?\n")

    def ended(self, *, lines: list[str], may_be_ended: bool = False) -> None:
        """Wait for the end of what was typed. It must have shown *lines*, if any, and have been successful."""
        mark = re.compile(rf"\n?{self._mark} (\d+)\n")
        found = eventually(
            lambda: mark.search(self.text, self._seen),
            PATIENCE,
            every=0.02,
            what=f"the end of a command in {self.text}",
        )
        assert found
        shown = self.text[self._seen : found.start()].rstrip("\n") + "\n"
        self._seen = found.end()
        code = int(found[1])
        assert code == 0 or (may_be_ended and code in ENDED_BY_SIGNAL), f"it ended with {code}:\n{shown}"
        if lines:
            assert re.fullmatch(pattern(lines) + r"\n*", shown), f"it showed\n{shown}\nand not\n" + "\n".join(lines)

    def shows(self, lines: list[str]) -> None:
        """Wait until what was typed, which goes on, has shown *lines*."""
        wanted = re.compile(pattern(lines))
        end = time.monotonic() + PATIENCE
        while not (found := wanted.match(self.text, self._seen)):
            assert self._mark not in self.text, f"it has ended:\n{self.text}"
            assert time.monotonic() < end, f"it shows\n{self.text[self._seen :]}\nand not\n" + "\n".join(lines)
            time.sleep(0.02)
        self._seen = found.end()

    def interrupt(self) -> None:
        """Type Ctrl-C."""
        os.killpg(self._shell.pid, signal.SIGINT)

    def _send(self, keys: str) -> None:
        self._keys.write(keys.encode())
        self._keys.flush()

    @property
    def _mark(self) -> str:
        return f"--- ended {self._number}:"
