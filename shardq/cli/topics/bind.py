"""`shardq topics bind`: send messages of matching topics to a queue."""

from __future__ import annotations

from shardq.cli.flags import add_sure
from shardq.cli.parsing import Args, add_queue, argument, command, flag, takes
from shardq.cli.shell import Shell

ABOUT = """A pattern is words joined by dots: * stands for exactly one word, # for zero or more. Quote it, because * and
# mean something else to the shell. Binding the same pattern to the same queue again changes nothing.
It does not ask."""

EXAMPLES = """  shardq topics bind 'orders.*.created' billing
  shardq topics bind 'orders.#' audit"""


@command(ABOUT, EXAMPLES)
@argument("pattern", metavar="PATTERN", help="which topics go to the queue")
@takes(add_queue)
@flag("router")
@takes(add_sure)
def run(args: Args, shell: Shell) -> None:
    """Bind the pattern to the queue."""
    args.yes = True  # it takes nothing away
    change = f"Bind {args.pattern} to queue {args.queue!r}"
    if not shell.goes_on(args, change, {"pattern": args.pattern, "queue": args.queue, "router": args.router}):
        return
    new = shell.client.bind(args.pattern, args.queue, router=args.router)
    text = "bound" if new else "was bound already"
    shell.show(text, {"pattern": args.pattern, "queue": args.queue, "router": args.router, "changed": new})
