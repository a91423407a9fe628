"""`shardq write`: store a message, or one for each line of stdin."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import msgspec

from shardq.cli.exits import FAILED, OK, UsageError
from shardq.cli.filters import tenant_of
from shardq.cli.output import remark
from shardq.cli.parsing import Args, add_queue, argument, command, flag, takes
from shardq.cli.shell import Shell
from shardq.errors import CodecError, ConfigError, PartlyWritten
from shardq.model import Message, Written
from shardq.ops.write.outgoing import ON_CONFLICT

if TYPE_CHECKING:
    from shardq.client import Queue

CHUNK_BYTES = 1 << 20  # bytes of stdin that are read at a time, which is about the size of one batch

ABOUT = """Prints the id of each message. With --create, a queue that does not exist is created with default settings.
PAYLOAD is stored as bytes, exactly as given. With --as text or --as json it is decoded first, so a worker finds the
same value in `delivery.payload` as after `queue.write(value)` in Python."""

EXAMPLES = """  shardq write jobs 'hello' -t tenant-42
  shardq write jobs '{"prompt": "a cat"}' --as json -t tenant-42 --delay 15m
  shardq write images - -t tenant-42 < cat.png
  zcat jobs.jsonl.gz | shardq write jobs --lines --as json -t tenant-42"""


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@flag("create")
@argument("payload", metavar="PAYLOAD", nargs="?", help="the payload; - or none reads all of stdin")
@flag("tenant", required=True)
@flag("as", "; decoded before it is stored")
@flag("lines", ", but empty ones")
@flag("delay")
@flag("deadline")
@argument(
    "--dedup-key",
    metavar="D",
    help="store one message of the shard key with this key; a second write returns the id of the first",
)
@argument("--unique-key", metavar="U", help="while a message with this key is not done, --on-conflict decides")
@argument(
    "--on-conflict",
    choices=ON_CONFLICT,
    default="existing",
    help="print the id of the existing one (default), replace its payload, or raise an error",
)
@flag("header")
def run(args: Args, shell: Shell) -> int:
    """Write the message of the arguments, or those of stdin."""
    if args.lines:
        if args.payload not in (None, "-") or args.dedup_key or args.unique_key:
            raise UsageError("--lines reads stdin: it goes with neither PAYLOAD, --dedup-key nor --unique-key")
        return _write_lines(args, shell)
    if args.payload is None and sys.stdin.isatty():
        raise UsageError("there is no payload: give one, or - to type it")
    from_stdin = args.payload in (None, "-")
    raw = sys.stdin.buffer.read() if from_stdin else os.fsencode(args.payload)
    message = _message(args, raw)
    message_id = shell.queue(args.queue, create=args.create).write(**msgspec.structs.asdict(message))
    shell.show(message_id, {"message_id": message_id, "is_new": message_id.is_new})
    return OK


def _message(args: Args, raw: bytes, what: str = "the payload") -> Message:
    key = tenant_of(args) or ""
    return Message(
        _payload(raw, args.form, what), key, args.delay, args.deadline, args.dedup_key, dict(args.header),
        args.unique_key, args.on_conflict,
    )  # fmt: skip


def _payload(raw: bytes, form: str, what: str) -> Any:
    if form == "bytes":
        return raw
    try:
        return raw.decode() if form == "text" else msgspec.json.decode(raw)
    except (ValueError, RecursionError) as error:
        problem = f"{what} is not {'JSON' if form == 'json' else 'UTF-8 text'}: {error}"
    raise UsageError(problem)


def _write_lines(args: Args, shell: Shell) -> int:
    queue, code = shell.queue(args.queue, create=args.create), OK
    for lines in _batches():
        try:
            messages = [_message(args, line, f"line {number:,} of stdin") for number, line in lines]
            if _write_batch(queue, messages, shell) != OK:
                code = FAILED
        except UsageError as error:
            raise _stopped(str(error), lines, code) from None
        except (CodecError, ConfigError) as error:  # of a message, before any of its batch was written
            if error.index is None:
                raise
            wrong = f"line {lines[error.index][0]:,} of stdin cannot be written: {error.__cause__}"
            raise _stopped(wrong, lines, code) from None
    return code


def _stopped(wrong: str, lines: list[tuple[int, bytes]], code: int) -> UsageError:
    """Return the error that says what is *wrong* with one of these *lines*, and that those before them were written."""
    first = lines[0][0]
    rest = " but for those told above" if code != OK else ""
    before = f"; all lines before line {first:,} were written{rest}" if first > 1 else "; nothing was written"
    return UsageError(f"{wrong}{before}")


def _batches() -> Iterator[list[tuple[int, bytes]]]:
    """The lines of stdin in batches, with their numbers from 1.

    A batch is what can be read at once, so the lines of a slow writer do not wait.
    """
    stdin, rest, number = cast("io.BufferedReader", sys.stdin.buffer), b"", 1
    while chunk := stdin.read1(CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        if batch := [(at, line) for at, line in enumerate(map(_line, lines), number) if line]:
            yield batch
        number += len(lines)
    if last := _line(rest):
        yield [(number, last)]


def _line(raw: bytes) -> bytes:
    return raw.removesuffix(b"\r")


def _write_batch(queue: Queue, messages: list[Message], shell: Shell) -> int:
    try:
        results: list[Any] = list(queue.write_many(messages))
    except PartlyWritten as partly:
        results = partly.results
        remark(str(partly))
    for message_id in results:
        if isinstance(message_id, Written):
            shell.show(message_id, {"message_id": message_id, "is_new": message_id.is_new})
    sys.stdout.flush()
    return OK if all(isinstance(each, str) for each in results) else FAILED
