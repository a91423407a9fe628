"""An edge producer of the hour: what its spool takes is to be stored once, whatever becomes of the gateway.

It does not learn the ids under which its messages are stored, so it notes what was sent and what was stored beside the
history: `added` puts that in at the end.

python -m tests.soak.hour.edges ADDRESS TOKEN AUTHORITY SPOOL FOLDER NAME SEED
"""

from __future__ import annotations

import itertools
import json
import random
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from shardq.edge import Edge
from shardq.errors import BackendTimeout, MessageRefused, SpoolFull
from tests.soak.hour.notes import PATIENCE, Notes
from tests.soak.load import Log

EDGED: Final = "edged"
"""The queue that it sends to."""

BATCH: Final = 5
"""Messages that it sends at once, at most."""

PAUSE: Final = 0.4
"""Seconds between two sends, at most."""

NEVER: Final = "0-0-0"
"""The id of a message that was never delivered."""


class Sender:
    """Sends, and notes what is stored."""

    def __init__(self, edge: Edge, notes: Notes, sent: Log, seed: int) -> None:
        self._edge, self._notes, self._sent = edge, notes, sent
        self._rng, self._numbers = random.Random(f"{seed} {notes.name}"), itertools.count()
        self._waiting: deque[tuple[str, Any]] = deque()

    def run(self, stop: threading.Event) -> None:
        """Until told to stop; then all that was sent is stored."""
        while not stop.is_set():
            for _ in range(self._rng.randint(1, BATCH)):
                self._send()
            self._look()
            stop.wait(self._rng.uniform(0, PAUSE))
        self._edge.flush(PATIENCE * 3)
        self._look()

    def _send(self) -> None:
        value = f"{self._notes.name}.{next(self._numbers)}"
        self._notes.add("try", values=[value], at=time.monotonic())
        try:
            found = self._notes.ask(
                "send", lambda: self._edge.send(value, shard_key=f"tenant-{self._rng.randrange(9)}", queue=EDGED)
            )
        except SpoolFull:
            return
        self._sent.add("sent", value=value, at=time.monotonic())
        self._waiting.append((value, found))

    def _look(self) -> None:
        """Note which are stored: they are about in the order in which they were sent."""
        while self._waiting:
            value, sent = self._waiting[0]
            try:
                sent.outcome(timeout=0)
            except BackendTimeout:
                return
            except MessageRefused as refused:
                self._sent.add("refused", value=value, at=time.monotonic(), why=str(refused))
            else:
                self._sent.add("stored", value=value, at=time.monotonic())
            self._waiting.popleft()


def added(folder: Path) -> Iterator[tuple[str, str, float]]:
    """Each value that a spool took, with the id under which it was delivered first, and when it was stored."""
    ids: dict[str, str] = {}
    for path in sorted(folder.glob("*.jsonl")):
        with path.open() as lines:
            for line in lines:
                if '"got"' in line and (event := json.loads(line))["queue"] == EDGED:
                    ids.setdefault(event["value"], event["id"])
    now = time.monotonic()
    for path in sorted(folder.glob("*.sent")):
        with path.open() as lines:
            events = [json.loads(line) for line in lines]
        stored = {each["value"]: each["at"] for each in events if each["e"] == "stored"}
        refused = {each["value"] for each in events if each["e"] == "refused"}
        for each in events:
            if each["e"] == "sent" and (value := each["value"]) not in refused:
                yield value, ids.get(f"{EDGED}:{value}", NEVER), stored.get(value, now)


def main(address: str, token: str, authority: str, spool: str, folder: str, name: str, seed: str) -> None:
    """Send until SIGTERM."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    notes, sent = Notes(Path(folder), f"{name}-{EDGED}", EDGED), Log(Path(folder), name, ".sent")
    with Edge(address, spool=spool, token=token, root_certificates=Path(authority).read_bytes(), name=name) as edge:
        Sender(edge, notes, sent, int(seed)).run(stop)


if __name__ == "__main__":
    main(*sys.argv[1:])
