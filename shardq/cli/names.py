"""Shard keys that a command names: as words, or in a file or stdin, one per line."""

from __future__ import annotations

import sys
from typing import Final

from shardq.cli.exits import UsageError
from shardq.cli.flags import add_flag
from shardq.cli.parsing import Args, Parser
from shardq.files import read_file

MAX_BYTES: Final = 64_000_000


def add_names(parser: Parser) -> None:
    """Add the arguments that name shard keys: words, and a file."""
    parser.add_argument("keys", metavar="KEY", nargs="*", help="shard keys")
    add_flag(parser, "names")


def names_of(args: Args) -> list[str]:
    """The shard keys that the arguments and the file name."""
    return [*args.keys, *(read_names(args.names) if args.names else ())]


def read_names(path: str) -> list[str]:
    """The lines of *path* that are not empty; `-` is stdin. OSError or UsageError when it cannot be read."""
    try:
        if path == "-":
            text = sys.stdin.read(MAX_BYTES + 1)
        else:
            text = read_file(path, MAX_BYTES, "the file of --names").decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"the file of --names must be UTF-8: {error.reason} at byte {error.start:,}") from None
    if len(text) > MAX_BYTES:
        raise UsageError(f"the file of --names may have at most {MAX_BYTES:,} characters")
    return [line for line in text.split("\n") if line]
