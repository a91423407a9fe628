"""One contender over one link: gateway, link and producer are processes of their own; what they used is measured."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import redis

from benchmarks.edge.link import Quality
from benchmarks.edge.producer import QUEUE, REFERENCES
from benchmarks.processes import cpu_of
from shardq import Client

ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Result:
    """What a contender took: seconds, bytes on the link, and CPU seconds of both ends."""

    seconds: float
    up: int
    down: int
    cpu: float
    gateway_cpu: float
    said: dict[str, Any]


def contest(url: str, kind: str, file: Path, count: int, quality: Quality) -> Result:
    """Send the *count* messages of *file* over a link. Each must be in the queue once.

    The references have an end of their own, which stores nothing.
    """
    with redis.from_url(url) as plain, Client.from_url(url) as client, ExitStack() as stack:
        plain.flushall()
        queue = client.queue(QUEUE, streams=16)
        queue.read_many(1)
        gateway = stack.enter_context(_end(kind, url))
        direct = json.loads(line_of(gateway))["address"]
        words = map(str, (quality.bandwidth, quality.round_trip, quality.loss))
        link = stack.enter_context(process("benchmarks.edge.link", direct, *words))
        address = f"127.0.0.1:{int(line_of(link))}"
        before = cpu_of(gateway.pid)
        producer = stack.enter_context(process("benchmarks.edge.producer", kind, address, str(file), direct))
        told = producer.stdout.read() if producer.stdout else ""
        if producer.wait() or not told:
            raise SystemExit(f"the producer {kind} failed")
        used = cpu_of(gateway.pid) - before
        assert link.stdin
        link.stdin.close()
        up, down = json.loads(line_of(link))
        stored = count if kind in REFERENCES else queue.len()
        if stored != count:
            raise SystemExit(f"{kind}: {stored:,} of {count:,} messages are in the queue")
    said = json.loads(told)
    return Result(said.pop("seconds"), up, down, said.pop("cpu"), used, said)


def _end(kind: str, url: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """Return the process that takes the messages. It prints its address."""
    if kind in REFERENCES:
        return process("benchmarks.edge.reference", kind)
    return process("shardq.cli", "serve", "gateway", "--insecure", "--listen", "127.0.0.1:0", "--redis", url, "--json")


def line_of(process: subprocess.Popen[str]) -> str:
    """Return the next line that it prints."""
    line = process.stdout.readline() if process.stdout else ""
    if not line:
        raise SystemExit(f"{process.args!r} ended")
    return line


@contextmanager
def process(module: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A process of this Python, which ends with the block. What it logs is left out, unless it fails."""
    command = [sys.executable, "-m", module, *words]
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=log, text=True) as started,
    ):
        try:
            yield started
        except SystemExit:
            log.seek(0)
            sys.stderr.write(log.read())
            raise
        finally:
            started.kill()
