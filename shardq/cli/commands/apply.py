"""`shardq apply`: give queues the settings, weights, shards and bindings that a file declares."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from shardq.cli.declared import Change, Declaration, changes, parsed
from shardq.cli.exits import DIFFERENT, FAILED, OK
from shardq.cli.parsing import Commands, add_yes, command
from shardq.cli.shell import Shell, remark
from shardq.cli.text import plural, printable
from shardq.errors import ShardqError

ABOUT = """FILE is TOML; - is stdin. It declares queues and what belongs to them. What it does not name stays as it is,
but the weights and bindings of a queue are exactly those that it names, if it names any. `shardq export` writes such
a file. Applying a file twice changes nothing the second time. With --dry-run, nothing is changed, and the exit code is
4 if something would be.

  [queues.predictions]
  streams = 64
  visibility_timeout = 30
  max_in_flight = 2

  [queues.predictions.weights]
  "acct-7" = 3

  [queues.predictions.assignment]
  keys = ["acct-7", "acct-8"]
  max_overlap = 1

  [[bindings]]
  pattern = "orders.*.created"
  queue = "predictions" """

EXAMPLES = """  shardq apply queues.toml --dry-run
  shardq apply queues.toml --yes"""
TRIES = 3
"""Others may change a queue meanwhile, so differences are looked for again."""


def register(commands: Commands) -> None:
    """Add the parser."""
    parser = command(commands, "apply", run, "make queues what a file declares", about=ABOUT, examples=EXAMPLES)
    parser.add_argument("file", metavar="FILE", help="the file; - is stdin")
    parser.add_argument("--dry-run", action="store_true", help="show what would change, and change nothing")
    add_yes(parser)


def run(args: argparse.Namespace, shell: Shell) -> int:
    """Show the changes, ask for confirmation, and make them."""
    declared = parsed(sys.stdin.read() if args.file == "-" else Path(args.file).read_text())
    found = changes(shell.client, declared)
    if args.dry_run:
        for change in found:
            _show(change, shell)
        remark(f"{plural(len(found), 'change')}; nothing was changed" if found else "there is nothing to change")
        return DIFFERENT if found else OK
    if not args.yes:
        for change in found:
            remark(f"{change.what}: {change.text}")
    if found and not shell.confirm(f"Make {plural(len(found), 'change')}?", yes=args.yes):
        return FAILED
    return _make_all(found, declared, shell)


def _make_all(found: list[Change], declared: Declaration, shell: Shell) -> int:
    made = 0
    for _ in range(TRIES):
        for change in found:
            try:
                change.make()
            except ShardqError as error:
                raise ShardqError(f"{change.what}: {change.text}: {error}") from error
            _show(change, shell)
            made += 1
        found = changes(shell.client, declared)
        if not found:
            remark(f"{plural(made, 'change')} made" if made else "there was nothing to change")
            return OK
    remark(
        f"others keep changing this: {plural(len(found), 'difference')} left, such as {found[0].what}: {found[0].text}"
    )
    return FAILED


def _show(change: Change, shell: Shell) -> None:
    shell.show(printable(f"{change.what}: {change.text}"), {"what": change.what, "change": change.text})
