"""`shardq read`: print the next messages, and give them back or ack them."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shardq.cli.exits import FAILED, OK, NothingThere
from shardq.cli.output import remark, say
from shardq.cli.parsing import Args, add_queue, argument, command, flag, takes
from shardq.cli.shell import Shell
from shardq.cli.text import bytes_fields, json_line, payload_fields, payload_text, shown_key
from shardq.errors import LeaseLost
from shardq.ops.read.read import MAX_COUNT
from shardq.protocol.lease import deliveries_in

if TYPE_CHECKING:
    from shardq.client import Delivery, Queue

ABOUT = """By default the messages are only shown: they are leased, printed, and given back at the end. This counts as a
delivery, so a message that is shown max_deliveries times goes to the dead letters. With --ack each message is acked
once it is printed, which removes it for good.

Prints one line per message: its id, shard key, delivery count and payload, with tabs between them. Characters that
control a terminal are escaped. --raw prints only the payloads, as they are stored; they are escaped only if stdout is a
terminal."""

EXAMPLES = """  shardq read jobs                    # what comes next?
  shardq read jobs -n 100 --ack --json > taken.jsonl
  shardq read images --ack --raw > cat.png
  shardq read jobs --wait 60s && echo 'there is work'"""


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@flag("limit", " (1)", default=1)
@flag("wait", " (0)", default=0.0)
@argument("--raw", action="store_true", help="print only the payloads, as they are stored, separated by newlines")
@argument("--ack", action=argparse.BooleanOptionalAction, default=False, help="ack what is printed")
def run(args: Args, shell: Shell) -> int:
    """Print deliveries, then ack them or give them back."""
    queue, _ = shell.existing(args.queue)
    limit = queue.settings().max_deliveries
    show = _Printer(args, shell)
    held: list[Delivery] = []
    code = OK
    try:
        for batch in _batches(queue, args.limit, args.wait):
            held += batch
            for delivery in batch:
                show(delivery)
                if args.ack:
                    code = max(code, _acked(delivery))
                    held.remove(delivery)
    finally:
        for delivery in held:
            _give_back(delivery, limit)
    if not show.count:
        raise NothingThere(f"queue {args.queue!r} has nothing to deliver now")
    return code


def _batches(queue: Queue, count: int, block: float) -> Iterator[list[Delivery]]:
    while count > 0 and (batch := queue.read_many(min(count, MAX_COUNT), block=block)):
        yield batch
        count, block = count - len(batch), 0.0


class _Printer:
    """Prints deliveries. Each is flushed when the call returns, so that it can be acked."""

    def __init__(self, args: Args, shell: Shell) -> None:
        self._raw, self._json, self._codecs = args.raw, shell.json, shell.client.codecs
        self.count = 0

    def __call__(self, delivery: Delivery) -> None:
        if self._json:
            say(json_line(self._fields(delivery)))
        elif self._raw:
            self._write_raw(delivery)
        else:
            received = delivery.received
            payload = payload_text(self._codecs, received.tag, received.body, received.fields)
            say("\t".join((delivery.message_id, shown_key(delivery.shard_key), str(delivery.count), payload)))
        sys.stdout.flush()
        self.count += 1

    def _write_raw(self, delivery: Delivery) -> None:
        legacy = delivery.received.fields
        body = delivery.body if legacy is None else payload_text(self._codecs, "l", b"", legacy).encode()
        if sys.stdout.isatty():
            say(body.decode(errors="surrogateescape"))
        else:
            sys.stdout.buffer.write(b"\n" * bool(self.count) + body)

    def _fields(self, delivery: Delivery) -> dict[str, object]:
        received = delivery.received
        return {
            "message_id": delivery.message_id,
            **bytes_fields("shard_key", delivery.shard_key),
            "count": delivery.count,
            "pickup_delay": delivery.pickup_delay,
            "last_error": delivery.last_error,
            "stream": delivery.stream,
            "headers": dict(delivery.headers),
            **payload_fields(self._codecs, received.tag, received.body, received.fields),
        }


def _acked(delivery: Delivery) -> int:
    try:
        delivery.ack()
    except LeaseLost as lost:
        remark(f"{delivery.message_id} was printed but not acked: {lost}")
        return FAILED
    return OK


def _give_back(delivery: Delivery, max_deliveries: int) -> None:
    if deliveries_in(delivery.received.token) >= max_deliveries:
        remark(f"{delivery.message_id} has now been delivered {delivery.count} times and goes to the dead letters")
    with contextlib.suppress(LeaseLost):
        delivery.nack()
