"""`shardq export`: write a file that declares what queues are."""

from __future__ import annotations

from shardq.cli.declared import exported, settings_of
from shardq.cli.output import remark, say
from shardq.cli.parsing import Args, argument, command, flag
from shardq.cli.shell import Shell

ABOUT = """Prints TOML for `shardq apply`: settings that are not the defaults, weights, plans, limits, assigned shard
keys, and the bindings of these queues. Without QUEUE it has all queues of `shardq queues`. The shards themselves are
dealt again where the file is applied to another Redis."""

EXAMPLES = """  shardq export > queues.toml
  shardq export jobs --router default --router audit"""


@command(ABOUT, EXAMPLES)
@argument("queues", metavar="QUEUE", nargs="*", help="the queues (all)")
@flag("router", "; repeatable", dest="routers", action="append", default=None)
def run(args: Args, shell: Shell) -> None:
    """Print the file."""
    if args.queues:
        names = [shell.existing(name)[0].name for name in args.queues]
    else:
        names = [name for name in shell.client.queues() if settings_of(shell.queue(name))]  # Redis may have lost some
    text, left_out = exported(shell.client, names, args.routers or ["default"])
    say(text, end="")
    for each in left_out:
        remark(f"left out, since TOML has no bytes: {each}")
