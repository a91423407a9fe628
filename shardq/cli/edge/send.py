"""`shardq edge send`: put messages into the spool, and deliver what is in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from shardq.cli.edge.options import add_gateway, open_edge
from shardq.cli.edge.progress import ProgressLine
from shardq.cli.exits import EXIT_PARTLY, FAILED, OK, UsageError
from shardq.cli.filters import tenant_of
from shardq.cli.output import remark
from shardq.cli.parsing import Args, argument, command, flag, takes
from shardq.cli.shell import Shell
from shardq.cli.text import plural
from shardq.errors import BackendTimeout, ConfigError, MessageRefused
from shardq.files import MIB, bounded, read_file

if TYPE_CHECKING:
    from shardq.edge import Edge

ROWS_AT_ONCE = 500
BYTES_AT_ONCE = 8 * MIB
MAX_FILE = 64 * MIB

ABOUT = """Prints the id of each message once it is on disk, and waits until the gateway has acked them and all that
was in the spool before. If no ack comes for the time of --wait, messages stay in the spool, and `shardq edge run`
delivers them. While the spool is full, it waits for room. On a terminal it shows how far it is, if the ids go
elsewhere. It ends with 0 if all were stored (with --wait 0, if all are in the spool), with 5 if some were refused:
`shardq edge refused` shows those, and `shardq edge resend` sends them again."""

EXAMPLES = """  shardq edge send metrics 'cpu 0.3' -t site-7
  shardq edge send files --each-file *.csv -t site-7
  zcat e.jsonl.gz | shardq edge send --topic orders.eu --lines --as json -t me"""


@command(ABOUT, EXAMPLES, extra="edge")
@argument("queue", metavar="QUEUE", nargs="?", default="", help="the queue; none with --topic")
@argument("payload", metavar="PAYLOAD", nargs="?", help="the payload; - reads all of stdin")
@argument("--topic", default="", metavar="T", help="send to the queues that this topic goes to")
@flag("tenant", required=True)
@flag("as")
@flag("lines")
@argument("--each-file", nargs="+", type=Path, metavar="FILE", help="each of these files is a message")
@flag("delay", default=0.0)
@flag("header")
@flag("wait", " and no ack comes (30s)", default=30.0)
@takes(add_gateway)
def run(args: Args, shell: Shell) -> int:
    """Send the messages of the arguments, or those of stdin."""
    if args.topic and args.queue and args.payload is None:
        args.payload, args.queue = args.queue, ""
    given = [args.lines, args.each_file is not None, args.payload is not None]
    if sum(given) != 1:
        raise UsageError("give one payload, or --lines, or --each-file FILE ...")
    with open_edge(args) as edge:
        try:
            with ProgressLine(edge, args.wait) as progress:
                count = _put(args, shell, edge, progress)
                if args.wait > 0:
                    progress.flush()
        except (BackendTimeout, MessageRefused) as error:
            remark(str(error))
            return FAILED if isinstance(error, BackendTimeout) else EXIT_PARTLY
    if args.wait == 0:
        remark(f"{plural(count, 'message')} in the spool, and not stored yet: `shardq edge run` delivers")
    return OK


def _put(args: Args, shell: Shell, edge: Edge, progress: ProgressLine) -> int:
    """Put all messages into the spool. Return how many. An error says how many are there."""
    count, payloads = 0, enumerate(_payloads(args), 1)
    wrong: Exception | None = None
    try:
        while wrong is None:
            messages, wrong = _next(args, payloads)
            if not messages:
                break
            for message_id in progress.put(partial(edge.send_many, messages)):
                shell.show(message_id, {"message_id": message_id})
            count += len(messages)
        if wrong is not None:
            raise wrong
    except (ConfigError, UsageError) as error:
        if not count:
            raise
        raise UsageError(f"{error}; before that {plural(count, 'message')} went into the spool") from None
    finally:
        sys.stdout.flush()
    return count


def _next(args: Args, payloads: Iterable[tuple[int, bytes]]) -> tuple[list[Any], Exception | None]:
    """Return some messages, none at the end, and what is wrong with the one behind them."""
    some: list[Any] = []
    size = 0
    try:
        for number, raw in payloads:
            some.append(_message(args, raw, number))
            size += len(raw)
            if len(some) == ROWS_AT_ONCE or size >= BYTES_AT_ONCE:
                break
    except (ConfigError, UsageError) as error:
        return some, error
    return some, None


def _payloads(args: Args) -> Iterator[bytes]:
    if args.lines:
        yield from (line for raw in sys.stdin.buffer if (line := raw.rstrip(b"\r\n")))
    elif args.each_file:
        yield from (read_file(each, MAX_FILE, "the file") for each in args.each_file)
    elif args.payload == "-":
        yield bounded(sys.stdin.buffer.read(MAX_FILE + 1), MAX_FILE, "stdin")
    else:
        yield os.fsencode(args.payload)


def _message(args: Args, raw: bytes, number: int) -> Any:
    from shardq.edge import EdgeMessage

    key = tenant_of(args) or ""
    return EdgeMessage(_decoded(raw, args, number), key, args.queue, args.topic, dict(args.header) or None, args.delay)


def _decoded(raw: bytes, args: Args, number: int) -> Any:
    if args.form == "bytes":
        return raw
    try:
        return raw.decode() if args.form == "text" else msgspec.json.decode(raw)
    except (ValueError, RecursionError) as error:
        which = f"message {number} of stdin" if args.lines else "the payload"
        which = str(args.each_file[number - 1]) if args.each_file else which
        reason = error.reason if isinstance(error, UnicodeDecodeError) else str(error)  # and not the bytes themselves
        at = f" (byte {error.start})" if isinstance(error, UnicodeDecodeError) else ""
        kind = "JSON" if args.form == "json" else "UTF-8 text"
        raise UsageError(f"{which} is not {kind}: {reason}{at}") from None
