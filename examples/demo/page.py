"""The page of the demo's queue: an address to open while it runs, and to look at afterwards."""

import json
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from examples.demo.processes import Process
from examples.demo.show import Show

PATIENCE = 20.0  # seconds for it to listen


class Page:
    """`shardq serve dashboard`, in a process of its own."""

    def __init__(self) -> None:
        self._process: Process | None = None

    def open(self, stack: ExitStack, folder: Path, url: str) -> str:
        """Serve the page until *stack* is closed; return its address."""
        words = ("serve", "dashboard", "--listen", "127.0.0.1:0", "--json", "--url", url)
        process = self._process = Process("page", folder, "-m", "shardq.cli", *words)
        stack.callback(process.close)
        until = time.monotonic() + PATIENCE
        while not process.lines:
            if process.ended() or time.monotonic() > until:
                raise SystemExit(f"FAILED: the page is not served: {process.last_error()}")
            time.sleep(0.02)
        address: str = json.loads(process.lines[0])["address"]
        return address

    def stay(self, show: Show) -> None:
        """Serve the page until Ctrl-C, if somebody is there who can press it."""
        if self._process is None or not sys.stdin.isatty():
            return
        show.say("page", "still open; Ctrl-C ends it", "bold")
        with suppress(KeyboardInterrupt):
            while not self._process.ended():
                time.sleep(0.2)
