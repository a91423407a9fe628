"""`shardq message`: where one message is; with --result what its handler returned."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from shardq.cli.exits import Nothing, UsageError
from shardq.cli.parsing import Args, add_queue, argument, command, flag, takes
from shardq.cli.shell import Shell
from shardq.cli.table import facts
from shardq.cli.text import bytes_fields, duration, payload_fields, payload_text, plural, shown_key
from shardq.errors import NoResult, ResultPending
from shardq.model import MessageStatus, Progress

if TYPE_CHECKING:
    from shardq.client import Queue

ABOUT = """It says whether the message waits and about how many come before it, is held back and by which setting, is
delayed, or is being worked on, until when and how far; or when it was done, if its result is kept. Nothing is delivered
or changed. Exit code 3 when the queue knows nothing of the id: the message was settled, removed or expired, or never
was.

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
        raise Nothing(f"queue {args.queue!r} has no message {args.message_id}: it was settled, or never was")
    shell.show(facts([("state", sentence(status)), *_details(status)]), fields_of(status))


def _show_result(queue: Queue, args: Args, shell: Shell) -> None:
    try:
        value = queue.result(args.message_id, timeout=args.wait or 0.0)
    except (ResultPending, NoResult) as error:
        raise Nothing(str(error)) from None
    tag, body = shell.client.codecs.encode(value)
    fields = payload_fields(shell.client.codecs, tag, body)
    named = {name.replace("payload", "result"): field for name, field in fields.items()}
    shell.show(payload_text(shell.client.codecs, tag, body), {"message_id": args.message_id} | named)


def sentence(status: MessageStatus) -> str:
    """Where the message is, in words."""
    match status.state:
        case "waiting":
            return _waiting(status)
        case "held_back" if status.reason == "paused":
            return f"held back: paused{_pause_left(status)}; {_before(status)} of its tenant"
        case "held_back":
            return f"held back by {status.reason}; {_before(status)} of its tenant"
        case "delayed" if status.reason == "max_dead":
            return f"waiting for room among the dead letters (max_dead); tried again in {_left(status)}"
        case "delayed":
            return f"delayed: due in {_left(status)}"
        case "in_flight":
            return _in_flight(status)
        case "dead":
            return f"a dead letter for {duration(status.time - (status.since or status.time))}: {status.reason}"
        case "done":
            return _done(status)
    return status.state


def _done(status: MessageStatus) -> str:
    since = duration(max(0.0, status.time - (status.since or status.time)))
    result = f"its result was not kept ({status.reason})" if status.reason else f"its result ends in {_left(status)}"
    return f"done since {since}; {result}"


def _progress(progress: Progress, now: float) -> str:
    total = "" if progress.total is None else f" of {progress.total:,.15g}"
    note = f": {progress.note}" if progress.note else ""
    return f"{progress.done:,.15g}{total}{note} ({duration(max(0.0, now - progress.at))} ago)"


def _waiting(status: MessageStatus) -> str:
    if status.reason == "lease ended":
        return "waiting: its lease has ended, and the next read takes it back"
    if status.reason == "max_deliveries":
        return "waiting: its last delivery has ended, and the next read makes it a dead letter"
    if status.stream is None:
        return "waiting: it was given back or is due, and comes with the next reads"
    if status.reason == "paused":
        return f"paused{_pause_left(status)}, in stream {status.stream}; {_before(status)} in that stream"
    return f"waiting in stream {status.stream}; {_before(status)} in that stream"


def _in_flight(status: MessageStatus) -> str:
    lease = "" if status.until is None else f"; its lease ends in {_left(status)} unless it is extended"
    return f"in flight{', and cancelled' if status.cancelled else ''}{lease}"


def _before(status: MessageStatus) -> str:
    return f"about {plural(status.ahead or 0, 'message')} before it"


def _pause_left(status: MessageStatus) -> str:
    return "" if status.until is None else f" for {_left(status)}"


def _left(status: MessageStatus) -> str:
    return duration(max(0.0, (status.until or status.time) - status.time))


def _details(status: MessageStatus) -> list[tuple[str, str]]:
    """What else is known of the message, by name."""
    now, found = status.time, [("message id", status.message_id)]
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
        found.append(("progress", _progress(status.progress, now)))
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
