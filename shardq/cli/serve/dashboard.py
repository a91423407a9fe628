"""`shardq serve dashboard`: the page for those who run queues."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shardq.cli.exits import UsageError
from shardq.cli.output import remark, say
from shardq.cli.parsing import Args, argument, command, flag
from shardq.cli.shell import Shell
from shardq.cli.text import shown_url

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from shardq.client import AsyncClient

DEFAULT_ADDRESS: Final = "127.0.0.1:8321"
"""Where it listens unless told: where only this machine comes."""

LOCAL_ADDRESS: Final = re.compile(r"(127\.[0-9.]+|localhost|\[::1\]):|unix:")
"""How an address begins where only this machine comes."""

ABOUT = """It also says when each message is served, and what would help (docs/dashboard.md). It listens on 127.0.0.1
unless told, shows no payloads, and changes nothing.

With --people only those may look whom the file names: they log in with the token that `shardq serve token NAME --role
view` made. The file is read again when it changes. With --actions people with the roles act and admin may also change
something; each change is in the journal, with their name.

Browsers may only name this machine, or a --host-name: else a page of another site could ask in the name of who looks
at it. On an address that others reach, give --people, and TLS (--tls-cert), or put a proxy with TLS in front:
--proxy names its address, whose word on who asks is believed. It needs the role observer (shardq server acl), with
--actions operator. It ends in order on SIGTERM or Ctrl-C."""

EXAMPLES = """  shardq serve dashboard
  shardq serve dashboard --people people.toml --actions
  shardq serve dashboard --host-name ops.example.com --proxy 10.0.0.2"""


@command(ABOUT, EXAMPLES, extra="dashboard")
@flag("listen", f" ({DEFAULT_ADDRESS})", default=DEFAULT_ADDRESS)
@argument("--people", type=Path, metavar="FILE", help="who may look, and do what, as TOML (anybody may look)")
@argument("--actions", action="store_true", help="let people with the role for it change something")
@flag("payloads", " and results of messages")
@argument("--declared", type=Path, metavar="FILE", help="say how queues differ from this file of shardq apply")
@argument("--host-name", action="append", default=[], metavar="NAME", help="a name under which browsers reach it")
@argument("--proxy", action="append", default=[], metavar="ADDRESS", help="a proxy that says who asks (repeatable)")
@flag("tls_cert")
@flag("tls_key")
def run(args: Args, shell: Shell) -> None:
    """Serve until a signal comes."""
    from shardq.cli.serving import until_a_signal, wait_for
    from shardq.dashboard import app
    from shardq.dashboard.serving import PageServer, PageSettings

    if args.actions and args.people is None:
        raise UsageError("--actions are for people who are known: give --people (shardq serve token --role makes them)")

    def connect() -> AsyncClient:
        from shardq.client import AsyncClient

        return AsyncClient.from_url(shell.url, timeout=shell.timeout)

    def page(client: AsyncClient) -> Starlette:
        return app(
            client,
            people=args.people,
            actions=args.actions,
            payloads=args.payloads,
            declared=args.declared,
            host_names=args.host_name,
        )

    settings = PageSettings(args.listen, args.proxy, args.tls_cert, args.tls_key)
    server = PageServer(settings, connect, page)
    with until_a_signal() as asked:
        server.open()
        try:
            _announce(server.address, args, shell)
            wait_for(asked, server.check)
        finally:
            server.close()


def _announce(address: str, args: Args, shell: Shell) -> None:
    who = "anybody may look" if args.people is None else "for people who log in"
    what = f"{who}, {'with actions' if args.actions else 'read only'}"
    shown = {"address": address, "redis": shown_url(shell.url), "actions": args.actions}
    shell.show(f"page on {address}, {what}, of {shown_url(shell.url)}", shown)
    say(end="", flush=True)
    if LOCAL_ADDRESS.match(args.listen):
        return
    if not args.host_name:
        remark("browsers of other machines are refused until --host-name says how they name this one")
    if args.people is None:
        remark("anybody who reaches the address may look: --people says who may")
    elif args.tls_cert is None and not args.proxy:
        remark("people can log in by HTTPS alone: give --tls-cert, or put a proxy with TLS in front")
