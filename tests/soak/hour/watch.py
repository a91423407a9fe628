"""What is measured while the hour runs: figures of queues, memory of processes, keys of servers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from shardq import QueueStats
from tests.servers import Server
from tests.soak.hour.dealer import Probes
from tests.soak.hour.doors import Doors
from tests.soak.hour.notes import Notes
from tests.soak.hour.staff import Staff
from tests.soak.load import Unanswered

FIGURES_EVERY: Final = 1.0
"""Seconds between two looks at all queues."""

PROCESSES_EVERY: Final = 5.0
"""Seconds between two looks at all processes."""

PAGE: Final = os.sysconf("SC_PAGE_SIZE")
"""Bytes of a page of memory."""

TIMEOUT: Final = 5.0
"""Seconds that whoever looks waits for an answer."""


class Watch:
    """Looks at queues and processes in threads of its own."""

    def __init__(
        self, probes: Probes, notes: Mapping[str, Notes], staff: Staff, servers: Mapping[str, Server], doors: Doors
    ) -> None:
        self._probes, self._notes, self._staff, self._servers, self._doors = probes, notes, staff, servers, doors
        self._over = threading.Event()

    @contextmanager
    def begun(self) -> Iterator[None]:
        """Look, until the context is left."""
        threads = [
            threading.Thread(target=self._again, args=(FIGURES_EVERY, self.figures)),
            threading.Thread(target=self._again, args=(PROCESSES_EVERY, self.processes)),
            threading.Thread(target=self._again, args=(FIGURES_EVERY, lambda: self._doors.poll(self._notes))),
        ]
        for each in threads:
            each.start()
        try:
            yield
        finally:
            self._over.set()
            for each in threads:
                each.join()

    def _again(self, every: float, look: Callable[[], object]) -> None:
        while not self._over.wait(every):
            look()

    def figures(self, *, quiet: bool = False) -> dict[str, QueueStats]:
        """The numbers of each queue that answers."""
        found = {}
        for name, notes in self._notes.items():
            asked, queue = time.monotonic(), self._probes.client(name).queue(name, create=False)
            try:
                stats = notes.ask("stats", lambda queue=queue: queue.stats(timeout=TIMEOUT), TIMEOUT)  # type: ignore[misc]
            except Unanswered:
                continue
            notes.add(
                "figures", asked=asked, at=time.monotonic(), length=stats.backlog, ready=stats.runnable,
                in_flight=stats.in_flight, delayed=stats.delayed, dead=stats.dead, quiet=quiet,
            )  # fmt: skip
            found[name] = stats
        return found

    def processes(self) -> None:
        """What each process has of the machine."""
        notes = next(iter(self._notes.values()))
        servers = {name: server.pid for name, server in self._servers.items() if server.pid}
        for who, pid in {**self._staff.pids(), **servers}.items():
            if (has := possessions(pid)) is not None:
                rss, fds, threads = has
                notes.add("process", who=who, pid=pid, at=time.monotonic(), rss=rss, fds=fds, threads=threads)

    def keys(self, when: str) -> None:
        """How many keys each server has, and how much memory they take."""
        notes = next(iter(self._notes.values()))
        for name, server in self._servers.items():
            count, memory = server.run("DBSIZE"), int(server.info("memory")["used_memory"])
            notes.add("keys", at=time.monotonic(), when=when, server=name, count=count, memory=memory)


def possessions(pid: int) -> tuple[int, int, int] | None:
    """Memory in bytes, descriptors and threads of a process; None if it has ended."""
    place = Path(f"/proc/{pid}")
    try:
        rss = int((place / "statm").read_text().split()[1]) * PAGE
        return rss, len([*(place / "fd").iterdir()]), len([*(place / "task").iterdir()])
    except OSError:
        return None
