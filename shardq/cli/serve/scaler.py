"""`shardq serve scaler`: the measures for autoscalers."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING

from shardq.arguments import check_name
from shardq.cli.output import say
from shardq.cli.parsing import Args, argument, command, flag
from shardq.cli.shell import Shell
from shardq.cli.text import shown_url

if TYPE_CHECKING:
    from shardq.client import AsyncClient
    from shardq.exporter.poller import Poller
    from shardq.exporter.scaler import ScalerSettings

ABOUT = """Autoscalers ask it how many workers a queue needs. GET /queues/NAME returns its numbers as JSON, and with
?metric=load, age or drain and &target=N the metric's value and the workers wanted. --grpc serves KEDA's external
scaler, which also hears at once when something is written. docs/autoscaling.md says which metric to take.

An unknown queue is 404 (NOT_FOUND). While Redis is away all is 503 (UNAVAILABLE), and never 0, so that nobody
takes workers away. However many ask, Redis is asked for the numbers of a queue once a second. /metrics (of all
queues, or those of -q), /healthz and /readyz are those of `shardq serve metrics`.

Anybody who reaches an address may ask: let only the autoscaler reach it, or give --client-ca. It needs the role
observer (shardq server acl); with the role autoscaler it knows the metric load alone, and /metrics needs -q. It ends in
order on SIGTERM or Ctrl-C."""

EXAMPLES = """  shardq serve scaler --listen :8080 --grpc :6000
  shardq serve scaler --listen 127.0.0.1:8080 -q jobs
  curl 'http://127.0.0.1:8080/queues/jobs?metric=drain&target=60'"""


@command(ABOUT, EXAMPLES)
@flag("listen", " (this one is for HTTP)", required=True)
@flag("queue", " that /metrics tells of (repeatable; all queues)", dest="queues", action="append", default=[])
@argument("--grpc", metavar="HOST:PORT", help="where to listen for KEDA (nowhere); needs the extra scaler")
@flag("tls_cert")
@flag("tls_key")
@flag("client_ca")
def run(args: Args, shell: Shell) -> None:
    """Serve until a signal comes."""
    from shardq.cli.serving import until_a_signal, wait_for
    from shardq.cli.speech import Speech
    from shardq.exporter.poller import Poller
    from shardq.exporter.scaler import ScalerSettings

    settings = ScalerSettings(
        listen=args.listen, grpc=args.grpc, tls_cert=args.tls_cert, tls_key=args.tls_key, client_ca=args.client_ca
    )
    queues = [check_name(name) for name in dict.fromkeys(args.queues)] or None
    poller = Poller(shell.client)
    Speech("text", logging.INFO).listen()
    with until_a_signal() as asked, ExitStack() as opened:
        _open(settings, poller, queues, shell, opened)
        poller.is_ready()  # if it is not, the log says why
        wait_for(asked, poller.is_ready)


def _open(settings: ScalerSettings, poller: Poller, queues: list[str] | None, shell: Shell, opened: ExitStack) -> None:
    """Begin to serve until *opened* is closed, and print where."""
    from shardq.cli.metrics import health
    from shardq.exporter.listener import Listener
    from shardq.exporter.page import MetricsPage
    from shardq.exporter.queues import QueueSamples
    from shardq.exporter.scaler import NO_NAME, queue_route

    samples = QueueSamples(poller, queues)
    opened.callback(samples.close)

    page = MetricsPage(samples.samples, shell.client.clock)
    certificates = settings.certificates()
    routes = {"/queues/": queue_route(poller), "/queues": NO_NAME, "/metrics": page, **health(poller.server)}
    listener = Listener(settings.listen, routes, tls=certificates.context() if certificates else None)
    listener.open()
    opened.callback(listener.close)
    where = {"address": listener.address}
    if settings.grpc is not None:
        from shardq.exporter.kedaserver import KedaServer

        server = KedaServer(settings.grpc, poller, lambda: _client(shell), certificates)
        server.open()
        opened.callback(server.close)
        where["grpc"] = server.address
    text = f"scaler on {where['address']}" + (f", for KEDA on {where['grpc']}" if "grpc" in where else "")
    secure = "TLS" if certificates else "no TLS"
    shell.show(f"{text}, {secure}, of {shown_url(shell.url)}", {**where, "redis": shown_url(shell.url)})
    say(end="", flush=True)


def _client(shell: Shell) -> AsyncClient:
    from shardq.client import AsyncClient

    return AsyncClient.from_url(shell.url, timeout=shell.timeout)
