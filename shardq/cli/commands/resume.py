"""`shardq resume`: deliver a tenant or a queue again that was paused."""

from __future__ import annotations

from shardq.cli.commands.pause import paused_thing
from shardq.cli.filters import tenant_of
from shardq.cli.flags import add_change
from shardq.cli.parsing import Args, add_queue, command, flag, takes
from shardq.cli.shell import Shell, asked_by

ABOUT = """Workers that wait are woken. A tenant that was paused by itself stays so when the whole queue continues.
If nothing is paused, nothing changes. It does not ask."""

EXAMPLES = """  shardq resume jobs -t acct-7
  shardq resume jobs"""


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@flag("tenant", " (the whole queue)")
@takes(add_change)
def run(args: Args, shell: Shell) -> None:
    """End the pause."""
    queue, _ = shell.existing(args.queue)
    key = tenant_of(args)
    what, named = paused_thing(args.queue, key)
    fields = {"queue": args.queue, **named, "paused": False}
    args.yes = True
    if shell.goes_on(args, f"Resume {what}", fields):
        queue.resume(key, **asked_by(args))
        shell.show(f"{what} goes on", fields)
