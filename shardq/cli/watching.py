"""Looking again and again: a command that looks shows its lines once, or with --watch until Ctrl-C."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from shardq.cli.output import clear, remark, say
from shardq.cli.parsing import Args
from shardq.cli.shell import Shell
from shardq.cli.text import json_line

Look = Callable[[], tuple[Iterable[str], Iterable[Mapping[str, Any]]]]
"""Looks once: lines for people, and objects for --json."""


def watch(args: Args, shell: Shell, look: Look) -> None:
    """Show what *look* sees; with --watch again and again. Then a server that is away for a while ends nothing."""
    from shardq.errors import BackendError

    show(shell, *look())
    pause = threading.Event()
    while args.watch is not None:
        pause.wait(args.watch)
        try:
            lines, values = look()
        except BackendError as error:
            remark(str(error))
            continue
        if not shell.json:
            say()
            clear()
        show(shell, lines, values)


def show(shell: Shell, lines: Iterable[str], values: Iterable[Mapping[str, Any]]) -> None:
    """Print the lines, or with --json the objects."""
    told = map(json_line, values) if shell.json else lines
    if text := "\n".join(told):
        say(text)
    sys.stdout.flush()
