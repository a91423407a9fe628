"""A client of the last version that knew no partitions: its own code, from the history of the project, in a process.

As a program this is that process. It does what each line of its standard input says, and answers by a line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import shardq

if TYPE_CHECKING:
    from types import TracebackType

SOON: Final = 60.0
"""Seconds."""


def read(queue: shardq.Queue, count: int) -> list[Any]:
    """Read and ack up to *count* messages. Return their payloads."""
    found = queue.read_many(count, block=0.05)
    lost = {each.message_id for each in queue.ack_many(found)}
    return [each.payload for each in found if each.message_id not in lost]


VERBS: Final[Mapping[str, Callable[..., Any]]] = {
    "where": lambda _: shardq.__file__,
    "write": lambda queue, payload, tenant: queue.write(payload, shard_key=tenant),
    "write_many": lambda queue, *pairs: queue.write_many([tuple(each) for each in pairs]),
    "read": read,
    "len": lambda queue: queue.len(),
    "resize": lambda queue, streams: queue.resize(streams),
    "configure": lambda queue, settings: queue.configure(**settings).max_deliveries,
}


def main(url: str, name: str) -> None:
    """Do what each line says: a verb and what it needs."""
    with shardq.Client.from_url(url, timeout=SOON) as client:
        queue = client.queue(name)
        for line in sys.stdin:
            verb, *arguments = json.loads(line)
            print(json.dumps(VERBS[verb](queue, *arguments)), flush=True)


class FormerClient:
    """Asks that process. It ends with a `with` block."""

    def __init__(self, code: Path, url: str, name: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, url, name],
            env={**os.environ, "PYTHONPATH": str(code)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> FormerClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.communicate(timeout=SOON)

    def ask(self, verb: str, *arguments: Any) -> Any:
        """Let it call a verb of its queue, and return what that returned."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([verb, *arguments]), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, f"{verb} failed: its process has said why"
        return json.loads(answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
