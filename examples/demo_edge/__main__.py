"""`make demo-edge`: a producer without access to Redis, while the link is cut, and gateway and producer are killed.

Every installed Python package is a tenant, and each of its source files is a message. The producer puts them into its
spool; a gateway stores what arrives. On the way the link is cut, then the gateway is killed and started anew, then the
producer. At the end each file is compared with what the queue has of it. The exit code is 0 if each is there once.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from examples.demo.files import sources
from examples.demo.show import Show
from examples.demo_edge.producer import QUEUE
from examples.demo_edge.proxy import Network
from shardq import Client, Queue, ShardqError
from shardq.embedded import EmbeddedServer

FILES = 3000
ROOT = Path(__file__).resolve().parents[2]
STUCK = 45.0
CUTS = 5


class Demo:
    """One run of the demo."""

    def __init__(self, show: Show, limit: int) -> None:
        self._show, self._limit, self._files = show, limit, sources(limit)
        self._stack = ExitStack()
        self._problems: list[str] = []

    def run(self) -> int:
        """Run it; the exit code."""
        started = time.monotonic()
        with self._stack as stack:
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shardq-demo-")))
            server = stack.enter_context(EmbeddedServer())
            queue = stack.enter_context(Client.from_url(server.url)).queue(QUEUE, create=True)
            queue.read_many(1)  # creates the queue: a gateway creates none
            self._url = server.url
            self._show.title(f"a producer at the edge, a gateway, and shardq on {server.name}")
            self._introduce()
            self._deliver(queue)
            self._compare(queue)
        took = f"{time.monotonic() - started:.0f} s"
        text = f"{len(self._files):,} files, each stored once, in {took}"
        self._show.verdict(self._problems, f"see above; after {took}" if self._problems else text)
        return 1 if self._problems else 0

    def _introduce(self) -> None:
        size = sum(each.size for each in self._files)
        tenants = len({each.tenant for each in self._files})
        self._show.say("input", f"{len(self._files):,} Python files of {tenants:,} packages, {size / 1e6:.1f} MB")
        self._show.say("producer", "a process that knows only the gateway; its spool is a file")

    def _deliver(self, queue: Queue) -> None:
        """Deliver all, with everything failing on the way."""
        gateway, address = self._start_gateway()
        network = Network(address)
        self._stack.callback(network.close)
        spool = str(self._folder / "spool.db")
        producer = self._start("examples.demo_edge.producer", network.address, spool, str(self._limit))
        total = len(self._files)
        for at in range(1, CUTS + 1):
            self._wait(queue, total * at // (CUTS * 4), producer)
            network.cut()
        self._show.say("a quarter", f"the link was cut {CUTS} times")
        self._wait(queue, total // 2, producer)
        gateway.kill()
        gateway.wait()
        stored = queue.len()
        gateway, network.target = self._start_gateway()
        self._show.say(
            "half-way", f"SIGKILL to the gateway, which had stored {stored:,}; another one is started", "bold"
        )
        self._wait(queue, total * 3 // 4, producer)
        producer.kill()
        producer.wait()
        self._show.say(
            "later", f"SIGKILL to the producer at {queue.len():,}; another one goes on with its spool", "bold"
        )
        producer = self._start("examples.demo_edge.producer", network.address, spool, str(self._limit))
        told, _ = producer.communicate(timeout=STUCK)
        if producer.returncode:
            self._problems.append(f"the producer ended with code {producer.returncode}")
            return
        plain, frames, _ = map(int, told.split())
        if frames:
            self._show.say("zstd", f"the last producer sent {plain / 1e6:.1f} MB in {frames / 1e6:.1f} MB")

    def _wait(self, queue: Queue, count: int, producer: "subprocess.Popen[str]") -> None:
        """Wait until the queue has so many messages, or all is sent."""
        until = time.monotonic() + STUCK
        while queue.len() < count and producer.poll() is None:
            if time.monotonic() > until:
                raise ShardqError(f"no progress for {STUCK:g} s: {queue.len():,} of {count:,} are stored")
            time.sleep(0.01)

    def _start_gateway(self) -> tuple["subprocess.Popen[str]", str]:
        words = ("serve", "gateway", "--insecure", "--listen", "127.0.0.1:0", "--redis", self._url, "--json")
        gateway = self._start("shardq.cli", *words, "--max-message", str(4 * 1024 * 1024))
        assert gateway.stdout is not None
        return gateway, json.loads(gateway.stdout.readline())["address"]

    def _start(self, module: str, *words: str) -> "subprocess.Popen[str]":
        errors = (self._folder / "errors").open("ab")
        self._stack.callback(errors.close)
        process = subprocess.Popen(
            [sys.executable, "-m", module, *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        self._stack.callback(_end, process)
        return process

    def _compare(self, queue: Queue) -> None:
        """Compare what the queue has with what is on disk."""
        found: Counter[tuple[str, str]] = Counter()
        while some := queue.read_many(500):
            found.update((each.headers["path"], _digest(each.body)) for each in some)
            queue.ack_many(some)
        wanted = {(each.path, _digest(Path(each.path).read_bytes())) for each in self._files}
        self._show.say("books", f"{len(wanted):,} files on disk, {found.total():,} messages in the queue")
        if lost := wanted - found.keys():
            self._problems.append(f"{len(lost):,} files are not in the queue, such as {min(lost)[0]}")
        if twice := [path for (path, _), count in found.items() if count > 1]:
            self._problems.append(f"{len(twice):,} files are in the queue twice, such as {twice[0]}")
        if strange := found.keys() - wanted:
            self._problems.append(f"{len(strange):,} messages are no file, such as {min(strange)[0]}")


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.demo_edge", description=__doc__)
    parser.add_argument("--files", type=int, default=FILES, metavar="N", help=f"so many files ({FILES:,})")
    args = parser.parse_args()
    try:
        return Demo(Show(Console(highlight=False)), args.files).run()
    except KeyboardInterrupt:
        return 130
    except ShardqError as error:
        print(f"FAILED: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
