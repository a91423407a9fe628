"""`shardq serve metrics`: the numbers of queues for Prometheus."""

from __future__ import annotations

import logging

from shardq.arguments import check_name
from shardq.cli.exits import UsageError
from shardq.cli.output import say
from shardq.cli.parsing import Args, argument, command, flag
from shardq.cli.shell import Shell
from shardq.cli.text import plural, shown_url

ABOUT = """GET /metrics returns the numbers of queues as Prometheus's text (docs/metrics.md says what each means),
/healthz whether this process lives, /readyz whether Redis answered in the last 5 s. However many ask, Redis is asked
for the numbers of a queue once a second. While it does not answer, shardq_up is 0, and the numbers are left out; stderr
has a line when it goes away, and when it is back.

With --tenants each queue has labels for a few tenants: those that limits or pauses hold back, the largest, and "other"
for the sum of the rest. A label stays for 15 minutes at least. All who may read the numbers read the names, unless
--hash-tenants shows 8 letters instead; a name that somebody guesses can be checked.

Anybody who reaches the address can read the numbers, and nothing else. It needs the role observer (shardq server acl);
with the role autoscaler, workers and drain time are left out. It ends in order on SIGTERM or Ctrl-C."""

EXAMPLES = """  shardq serve metrics --listen 127.0.0.1:9464
  shardq serve metrics --listen :9464 -q jobs -q mails
  shardq serve metrics --listen :9464 --tenants 10 --hash-tenants"""


@command(ABOUT, EXAMPLES)
@flag("listen", " (:9464 is on all addresses of this machine)", required=True)
@flag("queue", " (repeatable; all queues)", dest="queues", action="append", default=[])
@flag("tenants", " that have labels in each queue, up to 50 (none)")
@argument("--hash-tenants", action="store_true", help="show 8 letters instead of a tenant's name")
def run(args: Args, shell: Shell) -> None:
    """Serve until a signal comes."""
    from shardq.cli.metrics import health
    from shardq.cli.serving import until_a_signal, wait_for
    from shardq.cli.speech import Speech
    from shardq.exporter.listener import Listener
    from shardq.exporter.page import MetricsPage
    from shardq.exporter.poller import Poller
    from shardq.exporter.queues import QueueSamples
    from shardq.exporter.tenants import MAX_TENANTS

    tenants = args.tenants or 0
    if tenants > MAX_TENANTS:
        raise UsageError(f"--tenants may be {MAX_TENANTS} at most: each is a series of its own in each queue")
    if args.hash_tenants and not tenants:
        raise UsageError("--hash-tenants is about the labels of --tenants: say how many, as in --tenants 10")
    queues = [check_name(name) for name in dict.fromkeys(args.queues)] or None
    poller = Poller(shell.client)
    samples = QueueSamples(poller, queues, tenants=tenants, hash_tenants=args.hash_tenants)

    page = MetricsPage(samples.samples, shell.client.clock)
    listener = Listener(args.listen, {"/metrics": page, **health(poller.server)})
    Speech("text", logging.INFO).listen()
    with until_a_signal() as asked:
        listener.open()
        try:
            which = "all queues" if queues is None else plural(len(queues), "queue")
            shown = {"address": listener.address, "redis": shown_url(shell.url), "queues": queues}
            shell.show(f"metrics on {listener.address}, of {which} at {shown_url(shell.url)}", shown)
            say(end="", flush=True)
            poller.is_ready()  # if it is not, the log says why
            wait_for(asked, poller.is_ready)
        finally:
            listener.close()
            samples.close()
