"""`shardq assign`: give named shard keys streams of which any two share few."""

from __future__ import annotations

import argparse
from pathlib import Path

from shardq.cli.exits import FAILED, OK, UsageError
from shardq.cli.names import read_names
from shardq.cli.parsing import Commands, add_queue, add_yes, command, number
from shardq.cli.shell import Shell
from shardq.cli.text import plural

ABOUT = """Any two of the named share at most --max-overlap streams; all others are dealt theirs as ever. Who was named
earlier keeps theirs. All names get streams or none does; `shardq plan --names` tries it without a queue."""

EXAMPLES = """  shardq assign jobs acct-1 acct-2 --yes
  shardq assign jobs --names tenants.txt --max-overlap 2 --yes"""


def register(commands: Commands) -> None:
    """Add the parser."""
    parser = command(
        commands, "assign", run, "give named shard keys streams that few share", about=ABOUT, examples=EXAMPLES
    )
    add_queue(parser)
    add_names(parser)
    parser.add_argument(
        "--max-overlap", type=number(0), metavar="K", help="any two share at most K (as before; 1 at first)"
    )
    add_yes(parser)


def run(args: argparse.Namespace, shell: Shell) -> int:
    """Ask, then assign."""
    names = names_of(args)
    if not names and args.max_overlap is None:
        raise UsageError("name shard keys, or --max-overlap")
    queue, _ = shell.existing(args.queue)
    question = f"Change where messages of {plural(len(names), 'shard key')} of queue {args.queue!r} go to?"
    if not shell.confirm(question, yes=args.yes):
        return FAILED
    made = queue.assign(names, max_overlap=args.max_overlap)
    text = f"{plural(len(made), 'shard key')} assigned, any two share at most {plural(made.max_overlap, 'stream')}"
    shell.tell(text, {"queue": args.queue, "assigned": len(made), "max_overlap": made.max_overlap})
    return OK


def add_names(parser: argparse.ArgumentParser) -> None:
    """Shard keys as words or in a file."""
    parser.add_argument("keys", metavar="KEY", nargs="*", help="shard keys")
    parser.add_argument("--names", type=Path, metavar="FILE", help="more of them, one per line; - is stdin")


def names_of(args: argparse.Namespace) -> list[str]:
    """The shard keys that were named."""
    return [*args.keys, *(read_names(args.names) if args.names else ())]
