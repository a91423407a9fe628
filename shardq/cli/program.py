"""The entry point of the command `shardq`: it says what there is, or runs one command.

The imports here are those that a help and a typo need, which is little. All else waits until a command is to run.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

import shardq
from shardq.cli.commands import COMMANDS
from shardq.cli.exits import MEANING, USAGE
from shardq.cli.parsers import Discreet
from shardq.cli.parsing import add_common

ABOUT = """Write, read, inspect and change shardq's queues in Redis. `shardq help COMMAND` explains one
command."""

EXAMPLES = """examples:
  shardq embedded                 # in another terminal: a server to try it on
  shardq write predictions '{"prompt": "a cat"}' --as json -t tenant-42
  shardq read predictions --ack
  shardq stats predictions --watch"""


def parser() -> argparse.ArgumentParser:
    """The parser, which knows each command by its name."""
    top = Discreet(prog="shardq", description=ABOUT, epilog=f"{EXAMPLES}\n\n{MEANING}")
    top.add_argument("--version", action="version", version=f"shardq {shardq.__version__}")
    add_common(top)
    COMMANDS.add_to(top)
    return top


def _open_closed() -> None:
    """Let stdin, stdout and stderr lead nowhere if the program that started this one has closed them.

    Else Python has None in their places, and what is opened next, such as a connection, gets the number of one.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            nowhere = open(os.devnull, mode, encoding="utf-8")  # noqa: PTH123, SIM115 (as long as the process lives)
            if nowhere.fileno() != number:
                os.dup2(nowhere.fileno(), number)
            setattr(sys, name, nowhere)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line *argv*; returns the exit code."""
    _open_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    words = list(sys.argv[1:] if argv is None else argv)
    if not words:
        parser().print_help(sys.stderr)
        return USAGE
    while words[:1] == ["help"]:  # `shardq help stats` is `shardq stats --help`
        words = [*words[1:], "--help"]
    args = parser().parse_args(words)
    from shardq.cli.running import run

    return run(args)
