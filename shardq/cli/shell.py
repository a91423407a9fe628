"""The means of each command: the client, the output, and questions to the user."""

from __future__ import annotations

import getpass
import socket
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from shardq.cli.exits import Declined, UsageError
from shardq.cli.output import folded, say
from shardq.cli.text import json_line, printable

if TYPE_CHECKING:
    from shardq.cli.parsing import Args
    from shardq.client import Client, Queue
    from shardq.model import QueueStats

MAX_BY = 100
"""Letters of a name of who asked for something."""


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
        """The client, made when it is first needed; only then is it imported, with all that speaks to Redis."""
        if self._client is None:
            from shardq.client import Client

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

    def goes_on(self, args: Args, change: str, value: Mapping[str, Any]) -> bool:
        """Whether to make a *change*, which is said in words: "Purge queue 'jobs'". Declined if the user answers no.

        With --dry-run it is not: then *change* is printed, or with --json *value*.
        """
        if args.dry_run:
            self.show(f"would {change[:1].lower()}{change[1:]}", {"dry_run": True, **value})
            return False
        self.confirm(f"{change}?", yes=args.yes)
        return True

    def confirm(self, question: str, *, yes: bool) -> None:
        """Continue if --yes was given, or the user answers yes; else raise Declined."""
        if yes:
            return
        if not sys.stdin.isatty():
            raise UsageError(f"{question} There is no terminal to ask on: use --yes")
        say(folded(printable(f"{question} [y/N] "), sys.stderr), end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise Declined("nothing was changed")

    def close(self) -> None:
        """Close the client."""
        self._stack.close()


def asked_by(args: Args) -> dict[str, Any]:
    """The author of a change, and the reason: the values of --by and --note, or the user of this machine."""
    return {"by": args.by or _user(), "note": args.note or None}


def _user() -> str:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a number without a name
        name = "unknown"
    return printable(f"{name}@{socket.gethostname()}")[:MAX_BY]
