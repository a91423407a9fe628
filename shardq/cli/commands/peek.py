"""`shardq peek`: look at messages without a delivery."""

from __future__ import annotations

from typing import Any, get_args

from shardq.cli.exits import NothingThere
from shardq.cli.filters import tenant_of
from shardq.cli.output import remark, say
from shardq.cli.parsing import Args, add_queue, argument, command, flag, takes
from shardq.cli.shell import Shell
from shardq.cli.table import draw
from shardq.cli.text import bytes_fields, json_line, payload_fields, payload_text, printable, shown_key
from shardq.cli.values import number
from shardq.model import PeekedMessage, PeekState
from shardq.ops.inspect.page import MAX_COUNT
from shardq.outlook.peeked import when

ABOUT = """Messages come in the order in which they would be delivered: those that wait in the streams, in turn, then
those that are held back; delayed ones by due time, those in flight by the end of their leases, dead letters oldest
first. "held 2 min" means held back, for as long; "leased 8 s" in flight, leased for another 8 s. Nothing is delivered,
counted or changed. Payloads are shown with --payloads only."""

EXAMPLES = """  shardq peek jobs
  shardq peek jobs -t acct-7 -n 50 --payloads
  shardq peek jobs --state in_flight
  shardq peek jobs -n 1000 --json | jq -r .shard_key | sort | uniq -c"""

WIDTH = 80
MIN_WIDTH = 8


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@flag("limit", " (20)", default=20)
@flag("tenant")
@argument("--stream", type=number(0), metavar="N", help="only those of this stream")
@flag("state", f": {', '.join(get_args(PeekState))} (waiting)", choices=get_args(PeekState), default="waiting")
@flag("payloads")
def run(args: Args, shell: Shell) -> None:
    """Print the messages."""
    messages, now, has_more = _messages(args, shell)
    if shell.json:
        for each in messages:
            say(json_line(_fields(shell, each)))
    elif messages:
        _draw(shell, messages, now, payloads=args.payloads)
    if not messages:
        such = "" if args.tenant is None and args.stream is None else " such"
        raise NothingThere(f"queue {args.queue!r} has no{such} messages in the state {args.state}")
    if has_more:
        remark("there may be more; see --limit")


def _messages(args: Args, shell: Shell) -> tuple[list[PeekedMessage], float, bool]:
    """The messages, the server's time, and whether there may be more."""
    queue, _ = shell.existing(args.queue)
    found: list[PeekedMessage] = []
    cursor, now = None, 0.0
    while len(found) < args.limit:
        count = min(args.limit - len(found), MAX_COUNT)
        wanted: dict[str, Any] = {"shard_key": tenant_of(args), "stream": args.stream, "state": args.state}
        page = queue.peek(count, payloads=args.payloads, after=cursor, **wanted)
        found += page.messages
        cursor, now = page.cursor, page.time
        if cursor is None:
            break
    return found, now, cursor is not None


def _draw(shell: Shell, messages: list[PeekedMessage], now: float, *, payloads: bool) -> None:
    errors = [printable(each.reason or each.last_error) for each in messages]
    rows = [[each.message_id, when(each, now), str(each.deliveries), f"{each.size:,}"] for each in messages]
    headers = ["message id", "when", "tries", "bytes"]
    columns = 1 + any(errors)
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    room = max(columns * MIN_WIDTH, WIDTH - sum(widths) - 2 * (len(widths) + columns - 1)) // columns
    keys = [_cut(shown_key(each.shard_key), room) for each in messages]
    rows = [[row[0], key, *row[1:]] for row, key in zip(rows, keys, strict=True)]
    headers.insert(1, "tenant")
    if any(errors):
        headers.append("last error")
        rows = [[*row, _cut(error, room)] for row, error in zip(rows, errors, strict=True)]
    if any(each.task for each in messages):
        headers.append("task")
        rows = [[*row, printable(each.task)] for row, each in zip(rows, messages, strict=True)]
    if payloads:
        headers.append("payload")
        rows = [[*row, _payload(shell, each)] for row, each in zip(rows, messages, strict=True)]
    draw(headers, rows, right=frozenset({"tries", "bytes"}), folded=frozenset({"task", "payload"}))


def _payload(shell: Shell, message: PeekedMessage) -> str:
    if message.body is None:
        return ""
    return payload_text(shell.client.codecs, message.tag, message.body, message.fields)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _fields(shell: Shell, message: PeekedMessage) -> dict[str, Any]:
    names = (
        "message_id", "state", "written_at", "stream", "since", "until", "holder", "cancelled", "deadline",
        "deliveries", "last_error", "reason", "size", "task",
    )  # fmt: skip
    fields = {name: getattr(message, name) for name in names}
    fields |= bytes_fields("shard_key", message.shard_key) | {"headers": dict(message.headers)}
    if message.body is not None:
        fields |= payload_fields(shell.client.codecs, message.tag, message.body, message.fields)
    return fields
