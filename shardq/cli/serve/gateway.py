"""`shardq serve gateway`: store what edge producers send over gRPC."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from shardq.cli.exits import UsageError
from shardq.cli.gateway_status import show_status
from shardq.cli.output import remark, say
from shardq.cli.parsing import Args, Parser, argument, command, flag, takes
from shardq.cli.shell import Shell
from shardq.cli.text import shown_url
from shardq.cli.values import number, time

if TYPE_CHECKING:
    from shardq.gateway.server import Gateway
    from shardq.gateway.settings import GatewaySettings

ABOUT = """Producers without access to Redis connect to it over HTTP/2 (gRPC); docs/gateway.md describes the service. A
message is acked when Redis has stored it. Each producer shows a bearer token; --tokens names the TOML file that says
which queues, topics and shard keys each may write to (shardq serve token makes them). SIGHUP reads the file again, and
the TLS files. --status shows who sends, and who was refused, denied or held back.

It prints one line when it listens. On SIGTERM or Ctrl-C it takes no more connections, stores and acks what it has
received within --grace seconds, and exits with 0. A second signal ends it at once. Queues must exist before."""

EXAMPLES = """  shardq serve gateway --listen 127.0.0.1:7400 --tokens tokens.toml
  shardq serve gateway --listen [::]:7400 --tokens t --tls-cert c --tls-key k
  shardq serve gateway --status /run/shardq/status
  shardq serve gateway --listen 127.0.0.1:7400 --insecure  # to try it"""


def _add_bounds(parser: Parser) -> None:
    for name, default, text in (
        ("capacity", 1000, "messages that a connection may have unacknowledged"),
        ("fifo-bytes", 16 * 1024 * 1024, "bytes that may wait for each connection"),
        ("max-message", 1024 * 1024, "bytes of a payload, after decompression"),
        ("max-memory", 256 * 1024 * 1024, "bytes that the process may take"),
        ("max-ids", 200_000, "ids of a token that each queue remembers"),
        ("max-connections", 256, "calls in all"),
        ("connections-per-token", 64, "calls of one token"),
        ("connections-per-address", 256, "connections of one address that have shown no token"),
    ):
        parser.add_argument(f"--{name}", type=number(1), default=default, metavar="N", help=f"{text} ({default})")
    for name, default in (("messages-per-second", 2_000), ("bytes-per-second", 20_000_000)):
        text = f"of a token that names no rate of its own; 0: any number ({default})"
        parser.add_argument(f"--{name}", type=number(0), default=default, metavar="N", help=text)


@command(ABOUT, EXAMPLES, extra="gateway")
@flag("listen")
@argument("--redis", dest="url", metavar="URL", default=argparse.SUPPRESS, help="the same as --url")
@argument("--tokens", type=Path, metavar="FILE", help="the bearer tokens and their rights, as TOML")
@argument("--insecure", action="store_true", help="allow no TLS, and on loopback no tokens")
@flag("tls_cert")
@flag("tls_key")
@flag("client_ca")
@argument("--reflection", action="store_true", help="tell clients with a token what the service is")
@takes(_add_bounds)
@argument("--health", metavar="HOST:PORT", help="a second address, which strangers at the first one cannot fill")
@argument("--status-socket", type=Path, metavar="PATH", help="a socket for --status, which only this user may open")
@argument("--status", type=Path, metavar="PATH", help="show what the gateway with this status socket has done, and end")
@argument("--max-age", type=time, metavar="TIME", help="the age at which clients must connect again (none)")
@flag("grace")
@flag("router")
def run(args: Args, shell: Shell) -> None:
    """Serve until a signal comes."""
    if args.status is not None:
        show_status(args.status, shell)
        return
    if args.listen is None:
        raise UsageError("say where to --listen, or give the --status socket of a gateway that runs")
    # Until it serves: nothing was read yet that could be read again, and by default a hang-up ends the process.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from shardq.gateway.settings import GatewaySettings

    settings = GatewaySettings(
        listen=args.listen,
        tokens=args.tokens,
        insecure=args.insecure,
        tls_cert=args.tls_cert,
        tls_key=args.tls_key,
        client_ca=args.client_ca,
        reflection=args.reflection,
        capacity=args.capacity,
        fifo_bytes=max(args.fifo_bytes, args.max_message),
        max_message=args.max_message,
        max_memory=args.max_memory,
        max_ids=args.max_ids,
        messages_per_second=args.messages_per_second,
        bytes_per_second=args.bytes_per_second,
        max_connections=args.max_connections,
        connections_per_token=args.connections_per_token,
        connections_per_address=args.connections_per_address,
        health=args.health,
        status_socket=args.status_socket,
        max_age=args.max_age,
        grace=args.grace,
        router=args.router,
    )
    _show_lines()
    asyncio.run(_serve(settings, shell))


async def _serve(settings: GatewaySettings, shell: Shell) -> None:
    from shardq.client import AsyncClient
    from shardq.gateway.serving import serve

    def announce(gateway: Gateway, address: str) -> None:
        count = None if gateway.tokens is None else len(gateway.tokens.by_name)
        tokens = "no tokens" if count is None else f"{count} tokens"
        text = f"gateway on {address}, {'TLS' if settings.tls_cert else 'no TLS'}, {tokens}, to {shown_url(shell.url)}"
        shown = {"address": address, "redis": shown_url(shell.url), "tokens": count}
        if settings.health is not None:
            shown["health"] = gateway.door.entrances[-1].address
            text += f", health on {shown['health']}"
        shell.show(text, shown)
        say(end="", flush=True)

    async with AsyncClient.from_url(shell.url, timeout=shell.timeout, max_payload=settings.max_message) as client:
        totals = await serve(client, settings, announce)
    remark(f"the gateway has ended: {totals.text()}")


class _Lines(logging.Handler):
    """Prints a line for each connection."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.WARNING:  # the others are printed as all warnings are
            remark(record.getMessage())


def _show_lines() -> None:
    log = logging.getLogger("shardq.gateway")
    log.setLevel(logging.INFO)
    if not any(isinstance(handler, _Lines) for handler in log.handlers):
        log.addHandler(_Lines())
