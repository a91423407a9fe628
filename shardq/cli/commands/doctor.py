"""`shardq doctor`: is the server fit for shardq, and does it give the durability that is expected of it?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import shardq
from shardq.cli.exits import FAILED, OK
from shardq.cli.nodes import Node, driver_for, nodes_of
from shardq.cli.output import remark
from shardq.cli.parsing import Args, add_router, argument, command, takes
from shardq.cli.shell import Shell
from shardq.cli.table import facts
from shardq.cli.text import plural, printable, shown_url
from shardq.clock import SystemClock
from shardq.drivers import Driver
from shardq.durability import Durability, ServerFacts, fatal, has_lua_fixes, judge
from shardq.errors import BackendError
from shardq.ops.operate.libraries import runs_library, why_no_library
from shardq.ops.queue.fitness import server_facts
from shardq.ops.queue.retry import retry_until
from shardq.ops.queue.steps import Ask
from shardq.ops.topics.bindings import RouterState
from shardq.ops.topics.gone import bound_queues
from shardq.protocol import scripts
from shardq.protocol.keys import RouterKeys
from shardq.routing import BoundQueue

ABOUT = """Compares the server's version and settings with what shardq needs and with what the durability level
promises. The levels are none, process (writes survive a crash of Redis), disk (they survive a power loss) and
replica(n) (they survive the loss of the primary). On a cluster it checks one node, and on each of them
whether shardq's functions run there, or scripts instead. It tells whether the version has the fixes of Redis's Lua
of October 2025; what a distribution has backported it cannot tell. It also names the queues to which
patterns are bound and which are gone: publish passes over them. Exit code 1 if it finds a problem."""

EXAMPLES = """  shardq doctor
  shardq doctor --durability process --url redis://queue.example:6379
  shardq doctor --durability 'replica(2)' --json"""

_LUA = {
    True: "has the fixes of October 2025 (CVE-2025-49844)",
    False: "this version lacks the fixes of October 2025 (CVE-2025-49844): whoever may run scripts may take over the "
    "server. Update it, unless your distribution has backported them, which no number of Redis tells",
    None: "whether it has the fixes of October 2025 (CVE-2025-49844) is unknown",
}
PINGS = 20
NAMED = 5
"""So many queues that are gone are named."""


@dataclass(frozen=True)
class Checked:
    """What was found out about a server, and about the bindings of a router; None if this user may not read them.

    `libraries` says of each node how calls run there; it is empty where only scripts run.
    """

    facts: ServerFacts
    round_trip: float
    fatal: str | None
    findings: list[str]
    bindings: list[BoundQueue] | None
    libraries: dict[str, str]


@command(ABOUT, EXAMPLES)
@argument("--durability", default="none", metavar="LEVEL", help="the durability level to check for (none)")
@takes(add_router)
def run(args: Args, shell: Shell) -> int:
    """Query the server, compare, print."""
    level = Durability.parse(args.durability)
    with driver_for(shell.url) as driver, nodes_of(shell.url, driver, shell.timeout) as nodes:
        checked = _checked(driver, nodes, level, args.router, shell.timeout)
    shell.show(_text(checked, level, shell.url), _fields(checked, level, shell.url))
    return FAILED if checked.fatal or checked.findings else OK


def _checked(driver: Driver, nodes: Sequence[Node], level: Durability, router: str, timeout: float) -> Checked:
    clock = SystemClock()
    found = driver.run(server_facts(clock, timeout))
    trips = []
    for _ in range(PINGS):
        started = clock.monotonic()
        driver.run(retry_until(lambda _: Ask(("PING",)), started + timeout, clock))
        trips.append(clock.monotonic() - started)
    bindings = _bindings(driver, RouterState(RouterKeys(router), clock, timeout))
    findings = judge(level, found) + list(_gone(router, bindings or []))
    libraries = {node.name: _library(node.driver, timeout) for node in nodes}
    return Checked(found, sorted(trips)[PINGS // 2], fatal(found), findings, bindings, libraries)


def _library(driver: Driver, timeout: float) -> str:
    """How calls run on the node of *driver*."""
    own, clock = scripts.library(), SystemClock()
    if driver.run(runs_library(clock, timeout)):
        return own.name
    refused = driver.run(why_no_library(clock, timeout))
    if refused is None:
        return f"{own.name}, which the first call will load"
    return f"scripts are used instead of functions, until `shardq lua load` has loaded {own.name}: {refused.text}"


def _bindings(driver: Driver, router: RouterState) -> list[BoundQueue] | None:
    try:
        return driver.run(bound_queues(router, None))
    except BackendError as error:
        remark(f"the bindings of router {router.keys.name!r} cannot be looked at: {error}")
        return None


def _gone(router: str, bindings: list[BoundQueue]) -> Iterator[str]:
    """What is wrong with the bindings: those to queues that do not exist."""
    gone = [each for each in bindings if each.gone]
    queues = list(dict.fromkeys(each.queue for each in gone))
    if gone:
        more = f" and {len(queues) - NAMED:,} more" if len(queues) > NAMED else ""
        yield (
            f"router {router!r}: {plural(len(gone), 'binding')} of queues that do not exist: "
            f"{', '.join(map(repr, queues[:NAMED]))}{more}. A publish passes over them: declare them, or remove "
            "the bindings by shardq unbind --gone"
        )


def _text(checked: Checked, level: Durability, url: str) -> str:
    found = checked.facts
    lines = [
        ("server", f"{found} at {shown_url(url)}"),
        ("shardq", shardq.__version__),
        ("round trip", f"{checked.round_trip * 1e6:.0f} µs (median of {PINGS})"),
        (
            "append-only file",
            _or_unknown(found.aof, {True: f"on, fsync {found.appendfsync or 'unknown'}", False: "off"}),
        ),
        ("memory", _memory(found)),
        ("Lua", _LUA[has_lua_fixes(found)]),
        ("replicas", _or_unknown(found.replicas, {})),
        ("durability", str(level)),
        ("bindings", _number(checked.bindings)),
        *((f"library {node}".strip(), told) for node, told in checked.libraries.items()),
    ]
    problems = [f"FATAL    {checked.fatal}"] if checked.fatal else []
    problems += [f"WARNING  {finding}" for finding in checked.findings]
    return "\n".join([facts(lines), "", *map(printable, problems or ["OK       no problems found"])])


def _or_unknown(value: Any, names: dict[Any, str]) -> str:
    return "unknown" if value is None else names.get(value, str(value))


def _number(bindings: list[BoundQueue] | None) -> str:
    return "unknown" if bindings is None else f"{len(bindings):,}"


def _memory(found: ServerFacts) -> str:
    limit = _or_unknown(found.maxmemory, {0: "no limit"})
    return f"{limit}, maxmemory-policy {found.policy or 'unknown'}"


def _fields(checked: Checked, level: Durability, url: str) -> dict[str, Any]:
    found = checked.facts
    return {
        "url": shown_url(url),
        "server": found.server,
        "version": ".".join(map(str, found.version or ())),
        "shardq": shardq.__version__,
        "round_trip": checked.round_trip,
        "aof": found.aof,
        "appendfsync": found.appendfsync,
        "replicas": found.replicas,
        "maxmemory": found.maxmemory,
        "policy": found.policy,
        "lua_fixes": has_lua_fixes(found),
        "durability": str(level),
        "libraries": checked.libraries,
        "bindings": None if checked.bindings is None else len(checked.bindings),
        "fatal": checked.fatal,
        "findings": checked.findings,
    }
