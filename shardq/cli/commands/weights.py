"""`shardq weights`: show or change the weights of shard keys."""

from __future__ import annotations

from shardq.cli.exits import UsageError
from shardq.cli.parsing import Args, add_queue, add_yes, argument, command, pair, takes
from shardq.cli.shell import Shell
from shardq.cli.table import facts
from shardq.cli.text import bytes_fields, shown_key
from shardq.sharding import key_bytes

ABOUT = """While many shard keys have messages waiting, one of weight 3 gets three times the share of one of weight 1.
Every shard key has weight 1 unless it is changed here. Weights need the admission window, which new queues
have (shardq configure QUEUE window=1 switches it on). A weight is a whole number from 1 to 100."""

EXAMPLES = """  shardq weights jobs
  shardq weights jobs acct-7=3 acct-8=1 --yes"""


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@argument("changes", metavar="KEY=WEIGHT", type=pair, nargs="*", help="weights to change")
@takes(add_yes)
def run(args: Args, shell: Shell) -> None:
    """Change the weights that were given, then show all."""
    changes = {key: weight_of(key, text) for key, text in args.changes}
    queue, _ = shell.existing(args.queue)
    weights = queue.weights()
    if changes:
        named = ", ".join(f"{key} from {weights.get(key, 1)} to {to}" for key, to in changes.items())
        shell.confirm(f"Change the weight of {named} in queue {args.queue!r}?", yes=args.yes)
        weights = queue.set_weights(changes)
    found = sorted(weights.items(), key=lambda each: key_bytes(each[0]))
    rows = [(shown_key(key), str(weight)) for key, weight in found]
    fields = [{**bytes_fields("shard_key", key), "weight": weight} for key, weight in found]
    shell.show(facts(rows) if rows else "every shard key has weight 1", {"queue": args.queue, "weights": fields})


def weight_of(key: str, text: str) -> int:
    """The weight that was typed; UsageError if it is no number."""
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise UsageError(f"the weight of {key!r} must be a whole number from 1 to 100, not {text!r}")
    return int(text)
