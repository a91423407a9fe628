"""`shardq apply`: give queues the settings, weights, shards and bindings that a file declares."""

from __future__ import annotations

import sys

from shardq.cli.declared import changes
from shardq.cli.exits import EXIT_DIFFERENT, FAILED, OK
from shardq.cli.flags import add_sure
from shardq.cli.output import remark
from shardq.cli.parsing import Args, argument, command, takes
from shardq.cli.shell import Shell
from shardq.cli.text import plural, printable
from shardq.declared import Change, Declaration, parsed
from shardq.errors import ShardqError
from shardq.files import MIB, bounded, read_file

ABOUT = """FILE is TOML; - is stdin. It declares queues and what belongs to them. All else stays as it is, but the
weights, plans, limits and bindings of a queue are exactly those that it names, if it names any; assigned shard keys
keep their shards until `shardq assign --remove`. `shardq export` writes such a file. Applying a file twice changes
nothing the second time. With --dry-run, nothing is changed, and the exit code is 4 if something would be.

  [queues.predictions]
  streams = 64
  visibility_timeout = 30
  max_in_flight = 2

  [queues.predictions.weights]
  "acct-7" = 3

  [queues.predictions.plans.gold]
  max_in_flight = 3
  rate = 10

  [queues.predictions.limits]
  "acct-7" = "gold"

  [queues.predictions.assignment]
  keys = ["acct-7", "acct-8"]
  max_overlap = 1

  [[bindings]]
  pattern = "orders.*.created"
  queue = "predictions" """

EXAMPLES = """  shardq apply queues.toml --dry-run
  shardq apply queues.toml --yes"""
MAX_FILE = 64 * MIB
MAX_TRIES = 3
"""Others may change a queue meanwhile, so differences are looked for again."""


@command(ABOUT, EXAMPLES)
@argument("file", metavar="FILE", help="the file; - is stdin")
@takes(add_sure)
def run(args: Args, shell: Shell) -> int:
    """Show the changes, ask for confirmation, and make them."""
    declared = parsed(_read(args.file))
    found = changes(shell.client, declared)
    count = _count(found)
    if args.dry_run:
        for change in found:
            _show(change, shell)
        remark(f"{plural(count, 'change')}; nothing was changed" if found else "there is nothing to change")
        return EXIT_DIFFERENT if found else OK
    if not args.yes:
        for change in found:
            for line in change.lines:
                remark(f"{change.what}: {line}")
    if found:
        shell.confirm(f"Make {plural(count, 'change')}?", yes=args.yes)
    return _make_all(found, declared, shell)


def _read(name: str) -> bytes:
    if name == "-":
        return bounded(sys.stdin.buffer.read(MAX_FILE + 1), MAX_FILE, "the file on stdin")
    return read_file(name, MAX_FILE, "the file")


def _make_all(found: list[Change], declared: Declaration, shell: Shell) -> int:
    made = 0
    for _ in range(MAX_TRIES):
        for change in found:
            try:
                change.make()
            except ShardqError as error:
                raise ShardqError(f"{change.title}: {error}") from error
            _show(change, shell)
        made += _count(found)
        found = changes(shell.client, declared)
        if not found:
            remark(f"{plural(made, 'change')} made" if made else "there was nothing to change")
            return OK
    remark(f"others keep changing this: {plural(_count(found), 'difference')} left, such as {found[0].title}")
    return FAILED


def _count(found: list[Change]) -> int:
    return sum(len(change.lines) for change in found)


def _show(change: Change, shell: Shell) -> None:
    for line in change.lines:
        shell.show(printable(f"{change.what}: {line}"), {"what": change.what, "change": line})
