"""`shardq assigned`: list the shard keys that were assigned streams."""

from __future__ import annotations

from shardq.cli.exits import NOTHING, OK
from shardq.cli.output import remark, say
from shardq.cli.parsing import Args, add_queue, command, takes
from shardq.cli.shell import Shell
from shardq.cli.table import draw
from shardq.cli.text import bytes_fields, json_line, plural, shown_key
from shardq.protocol.bodies import text_or_bytes

ABOUT = """Lists the shard keys that `shardq assign` named. All others are dealt their streams by hashing. Exit code 3
when none is assigned."""


@command(ABOUT, "  shardq assigned jobs\n  shardq assigned jobs --json")
@takes(add_queue)
def run(args: Args, shell: Shell) -> int:
    """Print the assigned shard keys with their streams, sorted by shard key."""
    queue, _ = shell.existing(args.queue)
    made = queue.assignment()
    found = [(text_or_bytes(key), dealt) for key, dealt in made.items()]
    if shell.json:
        for name, dealt in found:
            say(json_line({**bytes_fields("shard_key", name), "shard": dealt}))
    elif found:
        draw(("shard key", "streams"), [(shown_key(name), ",".join(map(str, dealt))) for name, dealt in found])
        remark(
            f"{plural(len(found), 'shard key')} of at most {made.capacity:,}; any two share at most "
            f"{plural(made.max_overlap, 'stream')}"
        )
    else:
        remark(f"queue {args.queue!r} has no assigned shard keys")
    return OK if found else NOTHING
