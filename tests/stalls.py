"""How long a machine let processes wait for a processor: what is timed is timed without that."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

Folders = Iterable[Path]


def main_threads(pids: Iterable[int]) -> list[Path]:
    """The main thread of each of these processes."""
    return [Path(f"/proc/{pid}/task/{pid}") for pid in pids]


def threads(pids: Iterable[int]) -> list[Path]:
    """All threads of these processes."""
    return [each for pid in pids for each in Path(f"/proc/{pid}/task").glob("[0-9]*")]


class RunTime:
    """The seconds since it was made, less those in which threads were ready to run, and others ran.

    *of* names these threads. Those that end are seen by `look`, which is to be called now and then.
    """

    def __init__(self, of: Callable[[], Folders]) -> None:
        self._of, self._began = of, time.monotonic()
        self._before: dict[Path, int] = {}
        self._now: dict[Path, int] = {}
        self.look()
        self._before = dict(self._now)

    def look(self) -> None:
        """Note how long each of the threads has waited by now, in all."""
        with suppress(OSError):  # a process that ends just now
            for each in self._of():
                with suppress(OSError, IndexError):
                    self._now[each] = int((each / "schedstat").read_text().split()[1])

    @property
    def stalled(self) -> float:
        """The seconds in which they were ready, and did not run."""
        return sum(now - self._before.get(each, 0) for each, now in self._now.items()) / 1e9

    def until(self, moment: float) -> float:
        """How long it was until *moment*, of `time.monotonic`."""
        return moment - self._began - self.stalled
