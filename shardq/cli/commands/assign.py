"""`shardq assign`: give named shard keys shards that overlap little."""

from __future__ import annotations

from shardq.cli.exits import UsageError
from shardq.cli.names import add_names, names_of
from shardq.cli.parsing import Args, add_queue, add_yes, argument, command, number, takes
from shardq.cli.shell import Shell
from shardq.cli.text import plural

ABOUT = """Any two of the named shard keys share at most --max-overlap streams. Shard keys that are not named are dealt
their streams by hashing, as before. Shard keys that were assigned earlier keep their streams. If there is no room for
all names, nothing is assigned. `shardq plan --names` shows an assignment without a queue."""

EXAMPLES = """  shardq assign jobs acct-1 acct-2 --yes
  shardq assign jobs --names tenants.txt --max-overlap 2 --yes"""


@command(ABOUT, EXAMPLES)
@takes(add_queue, add_names)
@argument("--max-overlap", type=number(0), metavar="K", help="streams that any two may share (the stored value, or 1)")
@takes(add_yes)
def run(args: Args, shell: Shell) -> None:
    """Ask for confirmation, then assign."""
    names = names_of(args)
    if not names and args.max_overlap is None:
        raise UsageError("give shard keys, or --max-overlap")
    queue, _ = shell.existing(args.queue)
    question = f"Change the streams of {plural(len(names), 'shard key')} in queue {args.queue!r}?"
    shell.confirm(question, yes=args.yes)
    made = queue.assign(names, max_overlap=args.max_overlap)
    text = f"{plural(len(made), 'shard key')} assigned, any two share at most {plural(made.max_overlap, 'stream')}"
    shell.show(text, {"queue": args.queue, "assigned": len(made), "max_overlap": made.max_overlap})
