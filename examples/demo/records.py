"""The events that the processes record for the demo: one append-only file per process, one JSON object per line.

Each line is one `write`, so everything that a process did before it was killed is in its file, in whole lines.
"""

import json
import os
import time
from pathlib import Path
from typing import Any


class Records:
    """The writing end."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, event: str, **facts: Any) -> None:
        """Append one event."""
        line = json.dumps({"event": event, "at": time.monotonic(), **facts})
        os.write(self._file, line.encode() + b"\n")


class Tail:
    """The reading end: what was appended since the last look."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._file = path.open("rb")
        self._rest = b""

    def news(self) -> list[dict[str, Any]]:
        """The new events; an incomplete line is returned once it is complete."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Close the file."""
        self._file.close()
