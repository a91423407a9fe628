"""`shardq dead`: list dead letters."""

from __future__ import annotations

from typing import Any

from shardq.cli.exits import Nothing
from shardq.cli.output import remark, say
from shardq.cli.parsing import Args, add_queue, argument, command, number, takes
from shardq.cli.shell import Shell
from shardq.cli.table import draw
from shardq.cli.text import bytes_fields, duration, json_line, payload_fields, payload_text, shown_key
from shardq.model import DeadLetter
from shardq.ops.read.read import MAX_COUNT

ABOUT = """The oldest come first. A message becomes a dead letter when it was delivered max_deliveries times without an
ack, or when its handler rejected it. It stays one until it is redriven. Payloads are shown with --payload, and always
with --json."""

EXAMPLES = """  shardq dead jobs
  shardq dead jobs --count 1000 --json | jq -r .reason | sort | uniq -c"""


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@argument("-c", "--count", type=number(1), default=20, metavar="N", help="list at most N (20)")
@argument("--payload", action="store_true", help="show the payloads")
def run(args: Args, shell: Shell) -> None:
    """Print the oldest dead letters."""
    queue, numbers = shell.existing(args.queue)
    letters: list[DeadLetter] = []
    while len(letters) < args.count:
        after = letters[-1].entry_id if letters else "-"
        page = queue.dead(min(args.count - len(letters), MAX_COUNT), after=after)
        letters += page
        if not page:
            break
    if shell.json:
        for letter in letters:
            say(json_line(_fields(shell, letter)))
    elif letters:
        _draw(shell, letters, numbers.time, payload=args.payload)
    if len(letters) < numbers.dead and len(letters) == args.count:
        remark(f"{numbers.dead - len(letters):,} more; see --count")
    if not letters:
        raise Nothing(f"queue {args.queue!r} has no dead letters")


def _draw(shell: Shell, letters: list[DeadLetter], now: float, *, payload: bool) -> None:
    headers = [
        "message id",
        "shard key",
        "deliveries",
        "died",
        "reason",
        "last error",
        *(["task"] if (has_tasks := any(each.task for each in letters)) else []),
        *(["payload"] if payload else []),
    ]
    rows = []
    for each in letters:
        row = [
            each.message_id,
            shown_key(each.shard_key),
            str(each.count),
            f"{duration(max(0.0, now - each.died_at))} ago",
            each.reason,
            "" if each.last_error == each.reason else each.last_error,
            *([each.task] if has_tasks else []),
        ]
        rows.append([*row, payload_text(shell.client.codecs, each.tag, each.body, each.fields)] if payload else row)
    draw(headers, rows, right=frozenset({"deliveries"}), folded=frozenset({"reason", "last error", "task", "payload"}))


def _fields(shell: Shell, letter: DeadLetter) -> dict[str, Any]:
    return {
        "message_id": letter.message_id,
        "entry_id": letter.entry_id,
        **bytes_fields("shard_key", letter.shard_key),
        "task": letter.task,
        "reason": letter.reason,
        "count": letter.count,
        "last_error": letter.last_error,
        "written_at": letter.written_at,
        "died_at": letter.died_at,
        "headers": dict(letter.headers),
        **payload_fields(shell.client.codecs, letter.tag, letter.body, letter.fields),
    }
