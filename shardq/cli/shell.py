"""What each command uses: the client, the output, and questions to the user."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from shardq.cli.exits import Declined, UsageError
from shardq.cli.output import say
from shardq.cli.text import json_line, printable
from shardq.client import Client, Queue
from shardq.model import QueueStats


class Shell:
    """One run of one command. Data goes to stdout, remarks go to stderr."""

    def __init__(self, url: str, timeout: float, *, json: bool) -> None:
        self.url = url
        self.timeout = timeout
        self.json = json
        self._stack = ExitStack()
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """The client, made when it is first needed."""
        if self._client is None:
            self._client = self._stack.enter_context(Client.from_url(self.url, timeout=self.timeout))
        return self._client

    def queue(self, name: str, *, create: bool = False) -> Queue:
        """The queue, which may not exist yet; with *create* its first use makes it."""
        return self.client.queue(name, create=create)

    def existing(self, name: str) -> tuple[Queue, QueueStats]:
        """The queue and its stats; QueueMissing if there is no such queue, so that a typo creates none."""
        queue = self.queue(name)
        return queue, queue.stats()

    def show(self, text: str, value: Mapping[str, Any]) -> None:
        """Print *text*, or with --json *value* as one line of JSON."""
        say(json_line(value) if self.json else text)

    def confirm(self, question: str, *, yes: bool) -> None:
        """Go on if --yes was given, or the user answers yes; else raise Declined."""
        if yes:
            return
        if not sys.stdin.isatty():
            raise UsageError(f"{question} There is no terminal to ask on: use --yes")
        say(printable(f"{question} [y/N] "), end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise Declined("nothing was changed")

    def close(self) -> None:
        """Close the client."""
        self._stack.close()
