"""`shardq edge send`: put messages into the spool, and deliver what is in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from shardq.cli.edge.options import add_gateway, open_edge
from shardq.cli.exits import UsageError
from shardq.cli.parsing import Args, argument, command, pair, takes, time
from shardq.cli.shell import Shell
from shardq.protocol.bodies import text_or_bytes

BATCH = 500

ABOUT = """Prints the id of each message once it is on disk, and waits until the gateway has acked them and all that
was in the spool before. Messages without an ack when the time of --wait is over stay in the spool, and `shardq edge
run` goes on."""

EXAMPLES = """  shardq edge send metrics 'cpu 0.3' -k site-7
  shardq edge send files --each-file *.csv -k site-7
  zcat events.jsonl.gz | shardq edge send --topic orders.eu --lines --as json -k tenant-42"""


@command("send", "put messages into the spool and deliver it", ABOUT, EXAMPLES)
@argument("queue", metavar="QUEUE", nargs="?", default="", help="the queue; none with --topic")
@argument("payload", metavar="PAYLOAD", nargs="?", help="the payload; - reads all of stdin")
@argument("--topic", default="", metavar="T", help="send to the queues that this topic goes to")
@argument("-k", "--shard-key", required=True, metavar="K", help="the shard key, usually the tenant's name")
@argument("--as", dest="form", choices=("bytes", "text", "json"), default="bytes", help="how to read it")
@argument("--lines", action="store_true", help="each line of stdin is a message")
@argument("--each-file", nargs="+", type=Path, metavar="FILE", help="each of these files is a message")
@argument("--delay", type=time, default=0.0, metavar="S", help="deliver it no earlier than S seconds on")
@argument("--header", type=pair, action="append", metavar="N=V", default=[], help="a header")
@argument("--wait", type=time, default=30.0, metavar="S", help="wait for acks for so many seconds (30)")
@takes(add_gateway)
def run(args: Args, shell: Shell) -> None:
    """Send the messages of the arguments, or those of stdin."""
    if args.topic and args.queue and args.payload is None:
        args.payload, args.queue = args.queue, ""
    given = [args.lines, args.each_file is not None, args.payload is not None]
    if sum(given) != 1:
        raise UsageError("give one payload, or --lines, or --each-file FILE ...")
    with open_edge(args) as edge:
        payloads = _payloads(args)
        while batch := [*islice(payloads, BATCH)]:
            for message_id in edge.send_many(_message(args, each) for each in batch):
                shell.show(message_id, {"message_id": message_id})
        sys.stdout.flush()
        if args.wait > 0:
            edge.flush(args.wait)


def _payloads(args: Args) -> Iterator[bytes]:
    if args.lines:
        yield from (line for raw in sys.stdin.buffer if (line := raw.rstrip(b"\r\n")))
    elif args.each_file:
        yield from (each.read_bytes() for each in args.each_file)
    elif args.payload == "-":
        yield sys.stdin.buffer.read()
    else:
        yield os.fsencode(args.payload)


def _message(args: Args, raw: bytes) -> Any:
    from shardq.edge import EdgeMessage

    key = text_or_bytes(os.fsencode(args.shard_key))
    return EdgeMessage(_decoded(raw, args.form), key, args.queue, args.topic, dict(args.header) or None, args.delay)


def _decoded(raw: bytes, form: str) -> Any:
    if form == "bytes":
        return raw
    try:
        return raw.decode() if form == "text" else msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        raise UsageError(f"the payload is not {'JSON' if form == 'json' else 'UTF-8 text'}") from None
