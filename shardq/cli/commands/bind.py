"""`shardq bind`: send messages of matching topics to a queue."""

from __future__ import annotations

from shardq.cli.parsing import Args, add_queue, add_router, argument, command, takes
from shardq.cli.shell import Shell

ABOUT = """A pattern is words joined by dots: * stands for exactly one word, # for zero or more. Quote it, because * and
# mean something else to the shell. Binding the same pattern to the same queue again changes nothing."""

EXAMPLES = """  shardq bind 'orders.*.created' billing
  shardq bind 'orders.#' audit"""


@command(ABOUT, EXAMPLES)
@argument("pattern", metavar="PATTERN", help="which topics go to the queue")
@takes(add_queue, add_router)
def run(args: Args, shell: Shell) -> None:
    """Bind the pattern to the queue."""
    new = shell.client.bind(args.pattern, args.queue, router=args.router)
    text = "bound" if new else "was bound already"
    shell.show(text, {"pattern": args.pattern, "queue": args.queue, "router": args.router, "changed": new})
