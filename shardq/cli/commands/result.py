"""`shardq result`: the result of one message."""

from __future__ import annotations

from shardq.cli.exits import Nothing
from shardq.cli.parsing import Args, add_queue, argument, command, takes, time
from shardq.cli.shell import Shell
from shardq.cli.text import payload_fields, payload_text
from shardq.errors import NoResult, ResultPending

ABOUT = """Prints what the handler returned, if the queue keeps results (its result_ttl). Exit code 3 if there is no
result yet, or there will be none; stderr says which."""

EXAMPLES = """  shardq result jobs 1732150000000-42-7
  shardq result jobs 1732150000000-42-7 --wait 60 --json"""


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@argument("message_id", metavar="ID", help="the id that `shardq write` printed")
@argument("-w", "--wait", type=time, default=0.0, metavar="S", help="wait up to S seconds until it is done (0)")
def run(args: Args, shell: Shell) -> None:
    """Print the result."""
    queue, _ = shell.existing(args.queue)
    try:
        value = queue.result(args.message_id, timeout=args.wait)
    except (ResultPending, NoResult) as error:
        raise Nothing(str(error)) from None
    tag, body = shell.client.codecs.encode(value)
    fields = payload_fields(shell.client.codecs, tag, body)
    named = {name.replace("payload", "result"): field for name, field in fields.items()}
    shell.show(payload_text(shell.client.codecs, tag, body), {"message_id": args.message_id} | named)
