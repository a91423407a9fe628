"""`shardq message`: where one message is; with --result what its handler returned."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from shardq.cli.exits import NothingThere, UsageError
from shardq.cli.looking import allowed
from shardq.cli.parsing import Args, add_queue, argument, command, flag, takes
from shardq.cli.shell import Shell
from shardq.cli.table import facts
from shardq.cli.text import bytes_fields, duration, payload_fields, payload_text, plural, shown_key
from shardq.cli.width import wrapped
from shardq.errors import NoResult, ResultPending
from shardq.model import MessageStatus
from shardq.outlook.message import MessageCase, message_said, progress_said

if TYPE_CHECKING:
    from shardq.client import Queue
    from shardq.outlook.said import Said

ABOUT = """It says what the message waits for and about how many come before it, whether it is delayed, or is being
worked on, until when and how far; or when it was done, if its result is kept: in the words of the page. Nothing is
delivered or changed. Exit code 3 when the queue knows nothing of the id: the message was settled, removed or expired,
or never was.

With --result it prints what the handler returned, if the queue keeps results (its result_ttl). Exit code 3 if there is
no result yet, or there will be none; stderr says which."""

EXAMPLES = """  shardq message jobs 1732150000000-42-7
  shardq message jobs 1732150000000-42-7 --result --wait 60s --json"""


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@argument("message_id", metavar="ID", help="the id that `shardq write` printed")
@argument("--result", action="store_true", help="print its result")
@flag("wait", " (0)")
def run(args: Args, shell: Shell) -> None:
    """Print the status of the message, or its result."""
    if args.wait is not None and not args.result:
        raise UsageError("--wait goes with --result: a status is of now")
    queue, _ = shell.existing(args.queue)
    if args.result:
        _show_result(queue, args, shell)
        return
    status = queue.status(args.message_id)
    if status.state == "unknown":
        if shell.json:
            shell.show("", fields_of(status))
        raise NothingThere(f"queue {args.queue!r} has no message {args.message_id}: it was settled, or never was")
    said = _said(queue, status)
    told = [*wrapped(said.sentence), *(wrapped(said.reason) if said.second else []), "", facts(_details(status))]
    shell.show("\n".join(told), fields_of(status) | {"sentence": said.sentence, "second": said.reason})


def _show_result(queue: Queue, args: Args, shell: Shell) -> None:
    try:
        value = queue.result(args.message_id, timeout=args.wait or 0.0)
    except (ResultPending, NoResult) as error:
        raise NothingThere(str(error)) from None
    tag, body = shell.client.codecs.encode(value)
    fields = payload_fields(shell.client.codecs, tag, body)
    named = {name.replace("payload", "result"): field for name, field in fields.items()}
    shell.show(payload_text(shell.client.codecs, tag, body), {"message_id": args.message_id} | named)


def _said(queue: Queue, status: MessageStatus) -> Said:
    """Where it is and why it waits, as the page says it: for one that waits also whether anybody reads the queue."""
    waits = status.state in ("waiting", "held_back")
    outlook = allowed(lambda: queue.outlook(status.shard_key)) if waits else None
    settings = allowed(queue.settings)
    return message_said(MessageCase(status, outlook, settings.max_deliveries if settings else 0))


def _details(status: MessageStatus) -> list[tuple[str, str]]:
    """The other facts of the message, by name."""
    state = f"{status.state}, {status.reason}" if status.reason else status.state
    now, found = status.time, [("message id", status.message_id), ("state", state)]
    if status.task:
        found.append(("task", status.task))
    if status.shard_key is not None:
        found.append(("tenant", shown_key(status.shard_key)))
    if status.written_at is not None:
        found.append(("written", f"{duration(max(0.0, now - status.written_at))} ago"))
    if status.deadline is not None:
        over = now - status.deadline
        text = f"over for {duration(over)}: the next read drops it" if over >= 0 else f"in {duration(-over)}"
        found.append(("deadline", text))
    if status.deliveries is not None:
        found.append(("deliveries", str(status.deliveries)))
    if status.holder is not None:
        found.append(("holder", f"{status.holder}… (a nonce of the read that leased it)"))
    if status.progress is not None:
        found.append(("progress", progress_said(status.progress, now)))
    if status.last_error:
        found.append(("last error", status.last_error))
    if status.size is not None:
        found.append(("size of the result" if status.state == "done" else "size", plural(status.size, "byte")))
    return found


def fields_of(status: MessageStatus) -> dict[str, Any]:
    """The status as JSON fields."""
    fields = asdict(status)
    key = fields.pop("shard_key")
    return fields | ({} if key is None else bytes_fields("shard_key", key)) | {"headers": dict(status.headers)}
